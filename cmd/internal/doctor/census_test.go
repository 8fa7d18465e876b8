// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/dynamostore"
)

// TestItemsThatAreTold: what nobody can read any more, and what costs double.
func TestItemsThatAreTold(t *testing.T) {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	item := func(key string, tenure types.AttributeValue, data int) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"key": text(key), "recordVersionNumber": text("v"), "stamp": text("v"), "tenure": tenure,
			"data": &types.AttributeValueMemberB{Value: make([]byte, data)},
		}
	}
	var c census
	c.count(item("light", text("{}"), 100), "key")
	c.count(item("heavy", text("{}"), 1000), "key")
	c.count(item("tenure/session/s", text("{}"), 1000), "key")
	c.count(item("early", &types.AttributeValueMemberM{}, 0), "key")
	for _, want := range []struct {
		level   Level
		finding string
	}{
		{Bad, `1 item of a version of Tenure before the first release, such as "early"`},
		{OK, `1 lock above 1000 bytes, such as "heavy"`},
	} {
		found := false
		for _, f := range c.judge(dynamostore.Options{}) {
			found = found || f.Level == want.level && strings.HasPrefix(f.Finding, want.finding) && f.Advice != ""
		}
		if !found {
			t.Errorf("nothing tells %q: %+v", want.finding, c.judge(dynamostore.Options{}))
		}
	}
}

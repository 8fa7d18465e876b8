// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/dynamostore"
)

// policy is an IAM policy.
type policy struct {
	Version   string
	Statement []statement
}

type statement struct {
	Sid      string
	Effect   string
	Action   []string
	Resource string
}

// Placeholders for what only an account can tell.
const (
	placeRegion  = "REGION"
	placeAccount = "ACCOUNT"
)

// onDynamoDB prints the least policy.
func (f *policyCmd) onDynamoDB(a atTable) error {
	arn, err := f.arn(a)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(leastPolicy(arn, f.ReadOnly), "", "  ")
	if err != nil {
		return err // a policy of strings can always be written
	}
	return a.print(append(printable.JSON(text), '\n'))
}

// leastPolicy has a statement for each purpose, so that one can be left out.
func leastPolicy(arn string, readOnly bool) policy {
	allow := func(sid string, operations ...string) statement {
		s := statement{Sid: sid, Effect: "Allow", Resource: arn}
		for _, o := range operations {
			s.Action = append(s.Action, "dynamodb:"+o)
		}
		return s
	}
	locks := allow("TenureLocks", "BatchGetItem", "DeleteItem", "DescribeTable", "GetItem", "UpdateItem")
	if readOnly {
		locks = allow("TenureLooks", "BatchGetItem", "DescribeTable", "GetItem")
	}
	return policy{"2012-10-17", []statement{
		locks,
		allow("TenureLists", "Scan"),
		allow("TenureDoctor", "DescribeContinuousBackups", "DescribeTimeToLive"),
	}}
}

// arn returns the name of the table among all of AWS: its own if it can be
// asked, and one with placeholders otherwise, which is said.
func (f *policyCmd) arn(a atTable) (string, error) {
	why := "nobody was asked"
	region := a.url.Region
	if !f.Offline {
		var d dynamostore.Description
		client, err := a.connect()
		if err == nil {
			region = client.Options().Region
			d, err = a.describe(client)
		}
		switch {
		case a.ctx.Err() != nil:
			return "", err
		case err != nil:
			why = flags.OneLine(err)
		case d.ARN != "":
			return d.ARN, nil
		default:
			why = "the endpoint does not tell"
		}
	}
	if region == "" {
		region = placeRegion
		a.console.say("write your region for REGION, and the account's number for ACCOUNT (%s)", why)
	} else {
		a.console.say("write the account's number for ACCOUNT (%s)", why)
	}
	return "arn:" + partition(region) + ":dynamodb:" + region + ":" + placeAccount + ":table/" + a.url.Table, nil
}

// partition returns the part of AWS that a region belongs to.
func partition(region string) string {
	for _, p := range []struct{ prefix, name string }{
		{"cn-", "aws-cn"}, {"us-gov-", "aws-us-gov"}, {"us-isob-", "aws-iso-b"}, {"us-iso-", "aws-iso"}, {"eusc-", "aws-eusc"},
	} {
		if strings.HasPrefix(region, p.prefix) {
			return p.name
		}
	}
	return "aws"
}

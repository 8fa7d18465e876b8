// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// diagnosedTable creates a usual table, which change may alter.
func diagnosedTable(t *testing.T, change func(*dynamodb.CreateTableInput)) (enginetest.DynamoDB, string) {
	t.Helper()
	e := enginetest.FullDynamoDB(t)
	table, client := "tenure-test-"+rand.Text(), connect(t, e.URL)
	in := (&TableOptions{PartitionKey: DefaultPartitionKey}).input(table)
	if change != nil {
		change(in)
	}
	if _, err := client.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
			t.Error(err)
		}
	})
	return e, table
}

// diagnosed reports wanted findings of a table that are missing.
func diagnosed(t *testing.T, e enginetest.DynamoDB, table string, o Options, want ...string) {
	t.Helper()
	enginetest.Findings(t, open(t, e.URL, table, &o).Diagnose(t.Context(), driver.Timing{Heartbeat: 12 * time.Second}), want...)
}

func TestDiagnoseTable(t *testing.T) {
	e, table := diagnosedTable(t, nil)
	diagnosed(t, e, table, Options{}, "ok status: the table is ACTIVE", `ok keys: the partition key is "key"`, "ok replicas: no other", "ok ttl: no item expires",
		"ok billing: billed on demand", "ok permissions: granted: UpdateItem, GetItem, BatchGetItem, DeleteItem, Scan, DescribeTable;",
		"ok items: 0 locks of Tenure", "!bad ", "!warn ")
	diagnosed(t, e, table, Options{SharedTable: true}, "DescribeTable, TransactWriteItems;", "leave it out when no other client will come back", "!bad ")
	out, err := connect(t, e.URL).Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	if err != nil || len(out.Items) != 0 {
		t.Errorf("left behind: %v, %v", out.Items, err)
	}
}

func TestDiagnoseOthers(t *testing.T) {
	e, table := diagnosedTable(t, nil)
	enginetest.Claim(t, open(t, e.URL, table, nil), held("ours"))
	theirs := func(owner, lease string) {
		plantItem(t, e.URL, table, item{"key": text("theirs"), attrOwner: text(owner), attrLease: text(lease), attrVersion: text("v")})
	}
	theirs("java-1", "20000")
	plantItem(t, e.URL, table, item{"key": text("no lock"), "colour": text("red")})
	diagnosed(t, e, table, Options{}, `warn items: 1 lock of another lock client, such as "theirs" of "java-1": it is respected`, "write shared=true",
		`ok items: 1 item that no lock client has written, such as "no lock"`, "!bad items")
	diagnosed(t, e, table, Options{SharedTable: true}, `ok items: 1 lock of Tenure, and 1 lock of another lock client, such as "theirs"`, "!bad items", "!warn items")
	diagnosed(t, e, table, Options{SharedTable: true, Dialect: Dynamolock},
		`bad items: the other client writes leases like "20000", and cannot read those of dialect dynamolock; write dialect=java`)
	theirs("go-1", "20s")
	diagnosed(t, e, table, Options{SharedTable: true}, `bad items: the other client writes leases like "20s"`, "write dialect=dynamolock")
}

// The table's keys differ from the URL: the store does not open, and the error says what to
// write.
func TestDiagnoseOtherKeys(t *testing.T) {
	e, table := diagnosedTable(t, func(in *dynamodb.CreateTableInput) {
		in.AttributeDefinitions = []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}, {AttributeName: aws.String("n"), AttributeType: types.ScalarAttributeTypeN},
		}
		in.KeySchema = []types.KeySchemaElement{
			{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("n"), KeyType: types.KeyTypeRange},
		}
	})
	diagnosed(t, e, table, Options{}, `bad keys: the partition key is "id", not "key"; write partition-key=id in the URL`, `write sort-key=n&sort-value=VALUE`,
		"bad keys: the keys have the types S and N")
}

func TestTableFindings(t *testing.T) {
	sound := Description{
		Name: "locks", Region: "eu-central-1", Status: "ACTIVE", PartitionKey: "key", KeyTypes: []string{"S"}, Billing: "PAY_PER_REQUEST", Class: "STANDARD",
		TTLAttribute: aws.String(""), PointInTimeRecovery: aws.Bool(false),
	}
	for name, tc := range map[string]struct {
		change  func(*Description)
		options Options
		level   driver.Level
		want    string
	}{
		"sound":             {func(*Description) {}, Options{}, driver.LevelOK, "no other region"},
		"deleting":          {func(d *Description) { d.Status = "DELETING" }, Options{}, driver.LevelBad, "use another table"},
		"creating":          {func(d *Description) { d.Status = "CREATING" }, Options{}, driver.LevelBad, "wait until"},
		"key lost":          {func(d *Description) { d.Status = "INACCESSIBLE_ENCRYPTION_CREDENTIALS" }, Options{}, driver.LevelBad, "KMS"},
		"new status":        {func(d *Description) { d.Status = "DREAMING" }, Options{}, driver.LevelWarn, "DREAMING"},
		"no sort key":       {func(*Description) {}, Options{SortKey: "s", SortValue: "v"}, driver.LevelBad, `no sort key, and the URL names "s"`},
		"sort key":          {func(d *Description) { d.SortKey = "s" }, Options{SortKey: "s", SortValue: "v"}, driver.LevelOK, `"v" in the sort key "s"`},
		"eventual":          {func(d *Description) { d.Replicas, d.EventualReplicas = []string{"us-east-1"}, true }, Options{}, driver.LevelBad, "two regions could hold one lock"},
		"eventual insisted": {func(d *Description) { d.Replicas, d.EventualReplicas = []string{"us-east-1"}, true }, Options{EventualReplicas: true}, driver.LevelWarn, "all processes use eu-central-1"},
		"strong, shared":    {func(d *Description) { d.Replicas = []string{"us-east-1"} }, Options{SharedTable: true}, driver.LevelBad, "no transactions"},
		"strong":            {func(d *Description) { d.Replicas = []string{"us-east-1"} }, Options{}, driver.LevelOK, "strongly consistent"},
		"TTL":               {func(d *Description) { d.TTLAttribute = aws.String("ttl") }, Options{}, driver.LevelWarn, `expire by "ttl"`},
		"TTL, shared":       {func(d *Description) { d.TTLAttribute = aws.String("ttl") }, Options{SharedTable: true}, driver.LevelBad, "write ttl=true in the URL"},
		"TTL, insisted":     {func(d *Description) { d.TTLAttribute = aws.String("ttl") }, Options{SharedTable: true, TimeToLive: true}, driver.LevelWarn, `expire by "ttl"`},
		"TTL by a lock's":   {func(d *Description) { d.TTLAttribute = aws.String("leaseDuration") }, Options{}, driver.LevelBad, "which locks have"},
		"TTL unknown":       {func(d *Description) { d.TTLAttribute = nil }, Options{}, driver.LevelOK, "dynamodb:DescribeTimeToLive"},
		"infrequent":        {func(d *Description) { d.Class = "STANDARD_INFREQUENT_ACCESS" }, Options{}, driver.LevelWarn, "use STANDARD"},
		"little capacity":   {func(d *Description) { d.Billing, d.WriteCapacity = "PROVISIONED", 6 }, Options{}, driver.LevelWarn, "18 processes"},
		"capacity":          {func(d *Description) { d.Billing, d.WriteCapacity = "PROVISIONED", 7 }, Options{}, driver.LevelOK, "21 processes"},
		"protected":         {func(d *Description) { d.DeletionProtection = true }, Options{}, driver.LevelOK, "is protected"},
		"recovery":          {func(d *Description) { d.PointInTimeRecovery = aws.Bool(true) }, Options{}, driver.LevelOK, "has old tokens"},
		"recovery unknown":  {func(d *Description) { d.PointInTimeRecovery = nil }, Options{}, driver.LevelOK, "dynamodb:DescribeContinuousBackups"},
	} {
		d := sound
		tc.change(&d)
		worst, text := driver.LevelOK, ""
		o, err := tc.options.resolve()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range d.findings(o, 3*time.Second) {
			text += string(f.Level) + " " + f.Finding + "; " + f.Advice + "\n"
			if f.Level == driver.LevelBad || f.Level == driver.LevelWarn && worst == driver.LevelOK {
				worst = f.Level
			}
		}
		if worst != tc.level || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %s, want %s with %q:\n%s", name, worst, tc.level, tc.want, text)
		}
	}
}

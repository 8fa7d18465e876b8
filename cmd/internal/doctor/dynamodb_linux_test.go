// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// ward is a table that is examined.
type ward struct {
	client *dynamodb.Client
	table  string
}

// newWard makes a table, which change may make another one than the usual.
func newWard(t *testing.T, change func(*dynamodb.CreateTableInput)) ward {
	t.Helper()
	e := enginetest.FullDynamoDB(t)
	w := ward{table: "tenure-test-" + rand.Text(), client: dynamodb.New(dynamodb.Options{
		BaseEndpoint: &e.URL, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})}
	in := &dynamodb.CreateTableInput{
		TableName: &w.table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("key"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("key"), KeyType: types.KeyTypeHash}},
	}
	if change != nil {
		change(in)
	}
	if _, err := w.client.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := w.client.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: &w.table}); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w ward) examine(t *testing.T, o dynamostore.Options) (lines string, bad bool, err error) {
	t.Helper()
	return examine(t, Patient{
		Engine: DynamoDB{Table: w.table, Options: o, Connect: func(context.Context) (*dynamodb.Client, error) { return w.client, nil }},
		Open: func() (driver.Store, error) {
			s, err := dynamostore.Open(t.Context(), w.client, w.table, &o)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Options: options(t, tenure.Options{LeaseDuration: time.Minute}),
	})
}

// put writes an item of strings.
func (w ward) put(t *testing.T, attributes ...string) {
	t.Helper()
	item := map[string]types.AttributeValue{}
	for i := 0; i < len(attributes); i += 2 {
		item[attributes[i]] = &types.AttributeValueMemberS{Value: attributes[i+1]}
	}
	if _, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &w.table, Item: item}); err != nil {
		t.Fatal(err)
	}
}

func wantNoLines(t *testing.T, lines string, unwanted ...string) {
	t.Helper()
	for _, w := range unwanted {
		if strings.Contains("\n"+lines, w) {
			t.Errorf("there is %q in:\n%s", w, lines)
		}
	}
}

func TestHealthyTable(t *testing.T) {
	w := newWard(t, nil)
	lines, bad, err := w.examine(t, dynamostore.Options{})
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(
		t, lines, "ok status: the table is ACTIVE", `ok keys: the partition key is "key"`, "ok replicas: no other", "ok ttl: no item expires",
		"ok billing: billed on demand", "ok permissions: granted: UpdateItem, GetItem, BatchGetItem, DeleteItem, Scan, DescribeTable;",
		"ok items: 0 locks of Tenure", "ok store: can be read and written", "ok latency: writes take", "ok latency: eventually consistent reads take",
		"DynamoDB's agree within a second",
	)
	wantNoLines(t, lines, "\nbad", "warn s", "warn t", "warn i", "warn p")
	lines, bad, err = w.examine(t, dynamostore.Options{SharedTable: true})
	if bad || err != nil {
		t.Errorf("shared: bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "DescribeTable, TransactWriteItems;", "leave it out when no other client will come back")
	out, err := w.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &w.table})
	if err != nil || len(out.Items) != 0 {
		t.Errorf("left behind: %v, %v", out.Items, err)
	}
}

func TestTableOfOthers(t *testing.T) {
	w := newWard(t, nil)
	s, err := dynamostore.Open(t.Context(), w.client, w.table, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := tenure.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.Acquire(t.Context(), "ours", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.put(t, "key", "theirs", "ownerName", "java-1", "leaseDuration", "20000", "recordVersionNumber", "v")
	w.put(t, "key", "no lock", "colour", "red")
	lines, _, _ := w.examine(t, dynamostore.Options{})
	wantLines(
		t, lines, `warn items: 1 lock of another lock client, such as "theirs" of "java-1": it is respected`, "write shared=true",
		`ok items: 1 item that no lock client has written, such as "no lock"`,
	)
	wantNoLines(t, lines, "\nbad items")
	lines, _, _ = w.examine(t, dynamostore.Options{SharedTable: true})
	wantLines(t, lines, `ok items: 1 lock of Tenure, and 1 lock of another lock client, such as "theirs"`)
	wantNoLines(t, lines, "\nbad items", "warn items")
	lines, bad, _ := w.examine(t, dynamostore.Options{SharedTable: true, Dialect: dynamostore.Dynamolock})
	wantLines(t, lines, `bad items: the other client writes leases like "20000", and cannot read those of dialect dynamolock; write dialect=java`)
	if !bad {
		t.Error("a dialect that the other client cannot read is not bad")
	}
	w.put(t, "key", "theirs", "ownerName", "go-1", "leaseDuration", "20s", "recordVersionNumber", "v")
	lines, _, _ = w.examine(t, dynamostore.Options{SharedTable: true})
	wantLines(t, lines, `bad items: the other client writes leases like "20s"`, "write dialect=dynamolock")
}

func TestTableThatExpires(t *testing.T) {
	for attribute, want := range map[string]string{
		"expires": `warn ttl: items expire by "expires"`, "fencingToken": `bad ttl: items expire by "fencingToken", which locks have`,
	} {
		w := newWard(t, nil)
		_, err := w.client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
			TableName: &w.table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attribute), Enabled: aws.Bool(true)},
		})
		if err != nil {
			t.Fatal(err)
		}
		lines, bad, _ := w.examine(t, dynamostore.Options{})
		wantLines(t, lines, want, "switch TTL off")
		if bad != strings.HasPrefix(want, "bad") {
			t.Errorf("TTL by %s: bad %v", attribute, bad)
		}
	}
}

func TestProvisionedTable(t *testing.T) {
	w := newWard(t, func(in *dynamodb.CreateTableInput) {
		in.BillingMode = types.BillingModeProvisioned
		in.ProvisionedThroughput = &types.ProvisionedThroughput{ReadCapacityUnits: aws.Int64(5), WriteCapacityUnits: aws.Int64(1)}
	})
	lines, _, _ := w.examine(t, dynamostore.Options{})
	wantLines(t, lines, "warn billing: provisioned, with 5 read and 1 write units a second: 12 processes", "raise the write units")
}

// The table has other keys than the URL says: the store does not open, and the
// doctor says what to write.
func TestTableWithOtherKeys(t *testing.T) {
	w := newWard(t, func(in *dynamodb.CreateTableInput) {
		in.AttributeDefinitions = []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}, {AttributeName: aws.String("n"), AttributeType: types.ScalarAttributeTypeN},
		}
		in.KeySchema = []types.KeySchemaElement{
			{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("n"), KeyType: types.KeyTypeRange},
		}
	})
	lines, bad, err := w.examine(t, dynamostore.Options{})
	if !bad || err == nil {
		t.Errorf("bad %v, %v", bad, err)
	}
	wantLines(
		t, lines, `bad keys: the partition key is "id", not "key"; write partition-key=id in the URL`, `write sort-key=n&sort-value=VALUE`,
		"bad keys: the keys have the types S and N", "bad store: cannot be opened",
	)
}

func TestTableJudgements(t *testing.T) {
	sound := dynamostore.Description{
		Name: "locks", Region: "eu-central-1", Status: "ACTIVE", PartitionKey: "key", KeyTypes: []string{"S"}, Billing: "PAY_PER_REQUEST", Class: "STANDARD",
	}
	for name, tc := range map[string]struct {
		change  func(*dynamostore.Description)
		options dynamostore.Options
		level   Level
		want    string
	}{
		"sound":             {func(*dynamostore.Description) {}, dynamostore.Options{}, OK, "no other region"},
		"deleting":          {func(d *dynamostore.Description) { d.Status = "DELETING" }, dynamostore.Options{}, Bad, "use another table"},
		"creating":          {func(d *dynamostore.Description) { d.Status = "CREATING" }, dynamostore.Options{}, Bad, "wait until"},
		"key lost":          {func(d *dynamostore.Description) { d.Status = "INACCESSIBLE_ENCRYPTION_CREDENTIALS" }, dynamostore.Options{}, Bad, "KMS"},
		"new status":        {func(d *dynamostore.Description) { d.Status = "DREAMING" }, dynamostore.Options{}, Warn, "DREAMING"},
		"no sort key":       {func(*dynamostore.Description) {}, dynamostore.Options{SortKey: "s", SortValue: "v"}, Bad, `no sort key, and the URL names "s"`},
		"sort key":          {func(d *dynamostore.Description) { d.SortKey = "s" }, dynamostore.Options{SortKey: "s", SortValue: "v"}, OK, `"v" in the sort key "s"`},
		"eventual":          {func(d *dynamostore.Description) { d.Replicas, d.EventualReplicas = []string{"us-east-1"}, true }, dynamostore.Options{}, Bad, "two regions could hold one lock"},
		"eventual insisted": {func(d *dynamostore.Description) { d.Replicas, d.EventualReplicas = []string{"us-east-1"}, true }, dynamostore.Options{EventualReplicas: true}, Warn, "all processes use eu-central-1"},
		"strong, shared":    {func(d *dynamostore.Description) { d.Replicas = []string{"us-east-1"} }, dynamostore.Options{SharedTable: true}, Bad, "no transactions"},
		"strong":            {func(d *dynamostore.Description) { d.Replicas = []string{"us-east-1"} }, dynamostore.Options{}, OK, "strongly consistent"},
		"TTL":               {func(d *dynamostore.Description) { d.TTLAttribute = "ttl" }, dynamostore.Options{}, Warn, `expire by "ttl"`},
		"TTL, shared":       {func(d *dynamostore.Description) { d.TTLAttribute = "ttl" }, dynamostore.Options{SharedTable: true}, Bad, "write ttl=true in the URL"},
		"TTL, insisted":     {func(d *dynamostore.Description) { d.TTLAttribute = "ttl" }, dynamostore.Options{SharedTable: true, TimeToLive: true}, Warn, `expire by "ttl"`},
		"TTL by a lock's":   {func(d *dynamostore.Description) { d.TTLAttribute = "leaseDuration" }, dynamostore.Options{}, Bad, "which locks have"},
		"TTL unknown":       {func(d *dynamostore.Description) { d.TTLUnknown = true }, dynamostore.Options{}, OK, "dynamodb:DescribeTimeToLive"},
		"infrequent":        {func(d *dynamostore.Description) { d.Class = "STANDARD_INFREQUENT_ACCESS" }, dynamostore.Options{}, Warn, "use STANDARD"},
		"little capacity":   {func(d *dynamostore.Description) { d.Billing, d.WriteCapacity = "PROVISIONED", 6 }, dynamostore.Options{}, Warn, "18 processes"},
		"capacity":          {func(d *dynamostore.Description) { d.Billing, d.WriteCapacity = "PROVISIONED", 7 }, dynamostore.Options{}, OK, "21 processes"},
		"protected":         {func(d *dynamostore.Description) { d.DeletionProtection = true }, dynamostore.Options{}, OK, "is protected"},
		"recovery":          {func(d *dynamostore.Description) { d.PointInTimeRecovery = true }, dynamostore.Options{}, OK, "tokens of its time"},
		"recovery unknown":  {func(d *dynamostore.Description) { d.RecoveryUnknown = true }, dynamostore.Options{}, OK, "dynamodb:DescribeContinuousBackups"},
	} {
		d := sound
		tc.change(&d)
		worst, text := OK, ""
		for _, f := range Table(d, tc.options, 3*time.Second) {
			text += string(f.Level) + " " + f.Finding + "; " + f.Advice + "\n"
			if f.Level == Bad || f.Level == Warn && worst == OK {
				worst = f.Level
			}
		}
		if worst != tc.level || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %s, want %s with %q:\n%s", name, worst, tc.level, tc.want, text)
		}
	}
}

func TestServerTime(t *testing.T) {
	noon := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		sent, answered, theirs time.Duration // since noon
		want                   string
	}{
		{0, 100 * time.Millisecond, 0, "agree"},
		{900 * time.Millisecond, 1100 * time.Millisecond, time.Second, "agree"},
		{900 * time.Millisecond, 950 * time.Millisecond, 0, "agree"}, // it tells whole seconds
		{time.Minute, time.Minute + time.Second, 0, "ahead of DynamoDB's by 59s"},
		{0, time.Second, time.Minute, "behind DynamoDB's by 59s"},
	} {
		f := judgeServerTime(noon.Add(tc.sent), noon.Add(tc.answered), noon.Add(tc.theirs))
		if f.Level != OK || !strings.Contains(f.Finding, tc.want) {
			t.Errorf("sent %v, answered %v, theirs %v: %+v, want %q", tc.sent, tc.answered, tc.theirs, f, tc.want)
		}
	}
}

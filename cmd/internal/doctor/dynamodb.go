// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
)

// DynamoDB is the table of a store on DynamoDB.
type DynamoDB struct {
	Table   string
	Options dynamostore.Options
	// Connect returns a client for it.
	Connect func(context.Context) (*dynamodb.Client, error)
}

// tablePatience bounds the questions about a table, all of them together.
const tablePatience = 15 * time.Second

// examine looks at the table.
func (d DynamoDB) examine(ctx context.Context, p *Patient) {
	ctx, cancel := context.WithTimeout(ctx, tablePatience)
	defer cancel()
	client, err := d.Connect(ctx)
	if err != nil {
		return // the store says so, too
	}
	asked, stop := context.WithTimeout(ctx, openPatience)
	defer stop()
	described, err := dynamostore.Describe(asked, client, d.Table)
	answered := smithy.APIError(nil)
	if gone := (*types.ResourceNotFoundException)(nil); errors.As(err, &gone) || err != nil && !errors.As(err, &answered) {
		return // so it does here
	}
	if err == nil {
		for _, f := range Table(described, d.Options, p.Options.HeartbeatPeriod) {
			p.Tell(f)
		}
	}
	// One attempt of each request: what fails is reported, not fixed.
	client = dynamodb.New(client.Options(), func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	key := map[string]types.AttributeValue{d.partitionKey(): &types.AttributeValueMemberS{Value: driver.OwnPrefix + "doctor/" + rand.Text()}}
	if d.Options.SortKey != "" {
		key[d.Options.SortKey] = &types.AttributeValueMemberS{Value: d.Options.SortValue}
	}
	d.permissions(ctx, p, client, key)
	d.serverTime(ctx, p, client, key)
	d.strangers(ctx, p, client)
}

// eventualReads says that looks are cheaper than strong reads.
func (d DynamoDB) eventualReads() bool { return true }

func (d DynamoDB) partitionKey() string {
	if d.Options.PartitionKey == "" {
		return dynamostore.DefaultPartitionKey
	}
	return d.Options.PartitionKey
}

// trial is an operation that is tried, and what it is for.
type trial struct {
	operation string
	without   Level
	what      string // does not work without it
	try       func() error
}

// permissions tries every operation that a store makes. Writes have a condition
// that cannot hold: nothing is left behind, and a caller that may not write learns so
// before the condition is looked at.
func (d DynamoDB) permissions(ctx context.Context, p *Patient, client *dynamodb.Client, key map[string]types.AttributeValue) {
	table := &d.Table
	names, never := map[string]string{"#k": d.partitionKey()}, aws.String("attribute_exists(#k)")
	trials := []trial{
		{"UpdateItem", Bad, "no lock can be taken, renewed or released", func() error {
			_, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: table, Key: key, ConditionExpression: never, ExpressionAttributeNames: names})
			return err
		}},
		{"GetItem", Bad, "nobody can wait for a lock, nor look at it", func() error {
			_, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: table, Key: key})
			return err
		}},
		{"BatchGetItem", Warn, "the history cannot be read", func() error {
			_, err := client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*table: {Keys: []map[string]types.AttributeValue{key}}}})
			return err
		}},
		{"DeleteItem", Warn, "what falls out of a full history stays in the table", func() error {
			_, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: table, Key: key, ConditionExpression: never, ExpressionAttributeNames: names})
			return err
		}},
		{"Scan", Warn, "tenure status shows nothing unless it is given names", func() error {
			_, err := client.Scan(ctx, &dynamodb.ScanInput{TableName: table, Limit: aws.Int32(1)})
			return err
		}},
		{"DescribeTable", Bad, "the store cannot be opened by its URL", func() error {
			_, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: table})
			return err
		}},
	}
	if d.Options.SharedTable {
		for i := range trials {
			if trials[i].operation == "BatchGetItem" {
				trials[i].without, trials[i].what = Bad, "no lock of a shared table can be taken"
			}
		}
		// Both of its parts need UpdateItem, and the engine must have it.
		trials = append(trials, trial{"TransactWriteItems", Bad, "no lock of a shared table can be taken", func() error {
			_, err := client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{
				Update: &types.Update{
					TableName: table, Key: key, ConditionExpression: never, UpdateExpression: aws.String("SET #s = :s"),
					ExpressionAttributeNames:  map[string]string{"#k": d.partitionKey(), "#s": "stamp"},
					ExpressionAttributeValues: map[string]types.AttributeValue{":s": &types.AttributeValueMemberS{Value: "doctor"}},
				},
			}}})
			return err
		}})
	}
	var granted []string
	for _, t := range trials {
		err := t.try()
		if err == nil || neverHeld(err) {
			granted = append(granted, t.operation)
			continue
		}
		finding, further := refused(t, err)
		p.Tell(finding)
		if !further {
			break // the others would say the same
		}
	}
	if len(granted) > 0 {
		p.Tell(Finding{"permissions", OK, "granted: " + strings.Join(granted, ", "), ""})
	}
}

// neverHeld reports whether a write failed at its condition, as it should.
func neverHeld(err error) bool {
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) {
		return true
	}
	cancelled := (*types.TransactionCanceledException)(nil)
	return errors.As(err, &cancelled) && slices.ContainsFunc(cancelled.CancellationReasons, func(r types.CancellationReason) bool {
		return aws.ToString(r.Code) == "ConditionalCheckFailed"
	})
}

// refused says what the error of a trial means, and whether the others are worth
// to be tried.
func refused(t trial, err error) (f Finding, further bool) {
	api := smithy.APIError(nil)
	if !errors.As(err, &api) {
		return Finding{"permissions", Warn, fmt.Sprintf("%s had no answer: %v", t.operation, err), "try again"}, false
	}
	switch api.ErrorCode() {
	case "AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "NotAuthorized":
		return Finding{"permissions", t.without, fmt.Sprintf("dynamodb:%s is not granted: %s", t.operation, t.what), `grant it: "tenure table policy" prints the whole of it`}, true
	case "UnknownOperationException":
		return Finding{"permissions", t.without, fmt.Sprintf("the endpoint does not know %s: %s", t.operation, t.what), "it is an emulator without it: use another one"}, true
	case "ValidationException":
		return Finding{"permissions", Warn, fmt.Sprintf("%s could not be tried: %s", t.operation, api.ErrorMessage()), "see the keys above"}, false
	}
	return Finding{"permissions", Warn, fmt.Sprintf("%s could not be tried: %s: %s", t.operation, api.ErrorCode(), api.ErrorMessage()), "fix that first"}, false
}

// serverTime compares clocks, since they explain odd times in a history.
func (d DynamoDB) serverTime(ctx context.Context, p *Patient, client *dynamodb.Client, key map[string]types.AttributeValue) {
	sent := time.Now()
	out, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &d.Table, Key: key})
	if err != nil {
		return // it was told
	}
	theirs, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
	if !ok || theirs.IsZero() {
		p.Tell(Finding{"clock", OK, "the endpoint does not tell its time", ""})
		return
	}
	p.Tell(judgeServerTime(sent, time.Now(), theirs))
}

// judgeServerTime is given the times of a request and its answer, and the
// server's in between, of which it tells whole seconds.
func judgeServerTime(sent, answered, theirs time.Time) Finding {
	f := Finding{Check: "clock", Level: OK}
	ahead, behind := sent.Sub(theirs.Add(time.Second)), theirs.Sub(answered)
	switch {
	case ahead > 0:
		f.Finding = fmt.Sprintf("the wall clock here is ahead of DynamoDB's by %v", shown(ahead))
	case behind > 0:
		f.Finding = fmt.Sprintf("the wall clock here is behind DynamoDB's by %v", shown(behind))
	default:
		f.Finding = "the wall clock here and DynamoDB's agree within a second"
		return f
	}
	f.Advice = "leases do not go by it; the times in status and history do, and signatures, which must be right within some minutes"
	return f
}

// mostLooked bounds how many items are read to find their writers.
const mostLooked = 5000

// strangers looks for items that Tenure did not write. Its own, below
// driver.OwnPrefix, are no locks.
func (d DynamoDB) strangers(ctx context.Context, p *Patient, client *dynamodb.Client) {
	in := &dynamodb.ScanInput{
		TableName: &d.Table, Limit: aws.Int32(1000), // whole items: they are weighed, and cost the same
	}
	if sort := d.Options.SortKey; sort != "" {
		in.FilterExpression = aws.String("#sort = :sort")
		in.ExpressionAttributeNames = map[string]string{"#sort": sort}
		in.ExpressionAttributeValues = map[string]types.AttributeValue{":sort": &types.AttributeValueMemberS{Value: d.Options.SortValue}}
	}
	var found census
	for looked := 0; looked < mostLooked; {
		out, err := client.Scan(ctx, in)
		if err != nil {
			return // it was told
		}
		for _, item := range out.Items {
			found.count(item, d.partitionKey())
		}
		looked += int(out.ScannedCount)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			break
		}
	}
	for _, f := range found.judge(d.Options) {
		p.Tell(f)
	}
}

// census says who wrote the items of a table.
type census struct {
	locks, foreign, others   int
	example, owner, duration string // of a foreign one
	other                    string // that is no lock
	early, heavy             int    // of the layout before the first release; above a write unit
	earlyKey, heavyKey       string
}

// weight is the size of an item above which it is told: a write of more than
// 1,024 bytes costs two units.
const weight = 1000

// sizeOf returns what DynamoDB counts for a value, nearly.
func sizeOf(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return len(v.Value)/2 + 2
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberM:
		size := 3
		for name, inner := range v.Value {
			size += 1 + len(name) + sizeOf(inner)
		}
		return size
	case *types.AttributeValueMemberL:
		size := 3
		for _, inner := range v.Value {
			size += 1 + sizeOf(inner)
		}
		return size
	}
	return 1
}

func (c *census) count(item map[string]types.AttributeValue, partitionKey string) {
	text := func(attr string) string {
		s, ok := item[attr].(*types.AttributeValueMemberS)
		if !ok {
			return ""
		}
		return s.Value
	}
	key, version := text(partitionKey), text("recordVersionNumber")
	if _, early := item["tenure"].(*types.AttributeValueMemberM); early && version != "" && version == text("stamp") {
		c.early++
		c.earlyKey = key
	}
	size := 0
	for name, value := range item {
		size += len(name) + sizeOf(value)
	}
	if size > weight && !strings.HasPrefix(key, driver.OwnPrefix) && version != "" {
		c.heavy++
		c.heavyKey = key
	}
	switch {
	case strings.HasPrefix(key, driver.OwnPrefix):
	case version == "":
		c.others++
		c.other = key
	case version == text("stamp"):
		c.locks++
	default:
		c.foreign++
		c.example, c.owner, c.duration = key, text("ownerName"), text("leaseDuration")
	}
}

func (c *census) judge(o dynamostore.Options) []Finding {
	var all []Finding
	tell := func(level Level, finding, advice string) {
		all = append(all, Finding{"items", level, finding, advice})
	}
	theirs := fmt.Sprintf("%s of another lock client, such as %q of %q", counted(c.foreign, "lock"), c.example, c.owner)
	switch {
	case c.foreign == 0 && o.SharedTable:
		tell(OK, counted(c.locks, "lock")+" of Tenure, and none that was last written by another lock client", "shared=true makes each acquire two requests: leave it out when no other client will come back")
	case c.foreign == 0:
		tell(OK, counted(c.locks, "lock")+" of Tenure, and none of another lock client", "")
	case o.SharedTable:
		tell(OK, counted(c.locks, "lock")+" of Tenure, and "+theirs, "")
	default:
		tell(Warn, theirs+": it is respected, and never taken, since it keeps no token", "write shared=true in the URL of everybody who uses the table, or stop that client and delete its items")
	}
	if c.foreign > 0 {
		dialect := dynamostore.Dynamolock
		if strings.Trim(c.duration, "0123456789") == "" {
			dialect = dynamostore.Java
		}
		if dialect != o.Dialect {
			tell(Bad, fmt.Sprintf("the other client writes leases like %q, and cannot read those of dialect %v", c.duration, o.Dialect), fmt.Sprintf("write dialect=%v in the URL", dialect))
		}
	}
	if c.early > 0 {
		tell(Bad, fmt.Sprintf("%s of a version of Tenure before the first release, such as %q: no lock of theirs can be taken", counted(c.early, "item"), c.earlyKey), "delete them, when nothing uses them; their tokens begin at 1")
	}
	if c.heavy > 0 {
		tell(OK, fmt.Sprintf("%s above %d bytes, such as %q: each of their writes costs two units or more", counted(c.heavy, "lock"), weight, c.heavyKey), "keep data, names and reasons short")
	}
	if c.others > 0 {
		tell(OK, fmt.Sprintf("%s that no lock client has written, such as %q", counted(c.others, "item"), c.other), "a table of its own is better: tenure status reads all of it, and shows what is no lock as unreadable")
	}
	return all
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

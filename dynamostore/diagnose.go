// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tenurelock/tenure/driver"
)

const (
	// diagnosisPatience bounds the questions about a table, all of them together.
	diagnosisPatience = 15 * time.Second
	// mostLooked bounds how many items are read to find their writers.
	mostLooked = 5000
	// fewHolders is the least number of holders whose heartbeats a table must sustain.
	fewHolders = 20
)

// Diagnose examines the table, the rights of the program, and which clients have written
// the items. It implements [driver.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, t driver.Timing) []driver.Finding {
	ctx, cancel := context.WithTimeout(ctx, diagnosisPatience)
	defer cancel()
	d, err := s.Inspect(ctx)
	answered := smithy.APIError(nil)
	if gone := (*types.ResourceNotFoundException)(nil); errors.As(err, &gone) || err != nil && !errors.As(err, &answered) {
		return nil // each call reports it
	}
	var all []driver.Finding
	if err == nil {
		all = d.findings(s.options, t.Heartbeat)
	}
	return append(append(all, s.rights(ctx)...), s.foreignItems(ctx)...)
}

// findings assesses a table, given the options of its store and the heartbeat period of its
// clients.
func (d *Description) findings(o Options, heartbeat time.Duration) []driver.Finding {
	all := append([]driver.Finding{d.state()}, d.keyFindings(o)...)
	return append(all, d.replicas(o), d.expiry(o), d.capacity(heartbeat), d.class(), d.protection(), d.recovery())
}

func (d *Description) state() driver.Finding {
	const check, is = "status", "the table is %s"
	switch types.TableStatus(d.Status) {
	case types.TableStatusActive, types.TableStatusUpdating:
		return driver.OK(check, is, d.Status)
	case types.TableStatusCreating:
		return driver.Bad(check, is, d.Status).Advise("wait until it is ACTIVE")
	case types.TableStatusInaccessibleEncryptionCredentials:
		return driver.Bad(check, is, d.Status).Advise("its KMS key is unusable: fix it in " +
			"KMS within seven days, " +
			"after which DynamoDB archives the table")
	case types.TableStatusDeleting, types.TableStatusArchiving, types.TableStatusArchived:
		return driver.Bad(check, is, d.Status).Advise("no lock can be taken in it: use another table, with " +
			"another name, " +
			"since the tokens of a new table begin at 1")
	}
	return driver.Warn(check, is, d.Status).Advise("see its state in the AWS console")
}

func (d *Description) keyFindings(o Options) (all []driver.Finding) {
	bad := func(f driver.Finding) { all = append(all, f) }
	if d.PartitionKey != o.PartitionKey {
		bad(driver.Bad("keys", "the partition key is %q, not %q", d.PartitionKey, o.PartitionKey).
			Advise("write partition-key=%s in the URL", d.PartitionKey))
	}
	switch d.SortKey {
	case o.SortKey:
	case "":
		bad(driver.Bad("keys", "there is no sort key, and the URL names %q", o.SortKey).
			Advise("leave sort-key= and sort-value= out of the URL"))
	default:
		bad(driver.Bad("keys", "there is a sort key, %q, and the URL names %q", d.SortKey, o.SortKey).
			Advise("write sort-key=%s&sort-value=VALUE in the URL", d.SortKey))
	}
	if d.oddKeys() {
		bad(driver.Bad("keys", "the keys have the types %s", strings.Join(d.KeyTypes, " and ")).
			Advise("locks need a table whose keys have type S"))
	}
	if len(all) > 0 {
		return all
	}
	text := fmt.Sprintf("the partition key is %q", d.PartitionKey)
	if d.SortKey != "" {
		text += fmt.Sprintf("; locks have %q in the sort key %q, and are separate from locks with "+
			"another value", o.SortValue, d.SortKey)
	}
	return []driver.Finding{driver.OK("keys", "%s", text)}
}

func (d *Description) replicas(o Options) driver.Finding {
	where := strings.Join(d.Replicas, ", ")
	eventual := "the replicas in " + where + " are only eventually consistent: processes in two regions " +
		"could hold one lock"
	switch {
	case len(d.Replicas) == 0:
		return driver.OK("replicas", "no other region has a replica")
	case !d.EventualReplicas && o.SharedTable:
		return driver.Bad("replicas", "the replicas in %s are strongly consistent: such a table has no "+
			"transactions, which shared=true needs", where).
			Advise("use a table without replicas while another lock client uses it")
	case !d.EventualReplicas:
		return driver.OK("replicas", "the replicas in %s are strongly consistent", where)
	case o.EventualReplicas:
		return driver.Warn("replicas", "%s", eventual).Advise("make sure that all processes use %s, also "+
			"after a failover", d.Region)
	}
	return driver.Bad("replicas", "%s", eventual).Advise("use a table without replicas, or one with strong " +
		"multi-region consistency; " +
		"or write eventual-replicas=true in the URL if all processes use one region")
}

func (d *Description) expiry(o Options) driver.Finding {
	switch {
	case d.TTLAttribute == nil:
		return driver.OK("ttl", "the TTL setting could not be read").
			Advise(`grant dynamodb:DescribeTimeToLive: "tenure table policy" prints it`)
	case *d.TTLAttribute == "":
		return driver.OK("ttl", "no item expires")
	case ownAttributes[*d.TTLAttribute]:
		return driver.Bad("ttl", "items expire by %q, which locks have: DynamoDB may delete them while they "+
			"are held, and their tokens begin at 1 again",
			*d.TTLAttribute).Advise("switch TTL off")
	case o.SharedTable && !o.TimeToLive:
		return driver.Bad("ttl", "items expire by %q: the other client may set it on a lock, which is "+
			"then deleted, and the store does not open",
			*d.TTLAttribute).Advise("switch TTL off, or write ttl=true in the URL if no lock has the attribute")
	}
	return driver.Warn("ttl", "items expire by %q: a lock that gets it, from another client or by hand, "+
		"is deleted, and its token begins at 1 again",
		*d.TTLAttribute).Advise("switch TTL off, unless something else in the table needs it")
}

// capacity is compared with what heartbeats need: a write unit for each.
func (d *Description) capacity(heartbeat time.Duration) driver.Finding {
	if d.Billing == string(types.BillingModePayPerRequest) {
		return driver.OK("billing", "billed on demand")
	}
	holders := int64(float64(d.WriteCapacity) * heartbeat.Seconds())
	f := driver.OK("billing", "provisioned, with %d read and %d write units a second: "+
		"%d processes that hold locks, with a heartbeat every %v, use all of the writes", d.ReadCapacity, d.WriteCapacity, holders, heartbeat)
	if holders < fewHolders {
		f.Level, f.Advice = driver.LevelWarn, "an additional election is throttled, and heartbeats with it: "+
			"raise the write units, or make the table on-demand"
	}
	return f
}

func (d *Description) class() driver.Finding {
	if d.Class == string(types.TableClassStandardInfrequentAccess) {
		return driver.Warn("class", "the table class is %s", d.Class).Advise("its requests cost more, " +
			"which are the cost of locks, " +
			"and its storage less, which locks hardly need: use STANDARD")
	}
	return driver.OK("class", "the table class is %s", d.Class)
}

func (d *Description) protection() driver.Finding {
	if d.DeletionProtection {
		return driver.OK("protection", "the table is protected from deletion")
	}
	return driver.OK("protection", "the table is not protected from deletion").
		Advise("for a table that must last, switch deletion protection on: the tokens of a new table begin at 1")
}

func (d *Description) recovery() driver.Finding {
	switch {
	case d.PointInTimeRecovery == nil:
		return driver.OK("recovery", "the point-in-time recovery setting could not be read").
			Advise(`grant dynamodb:DescribeContinuousBackups: "tenure table policy" prints it`)
	case *d.PointInTimeRecovery:
		return driver.OK("recovery", "point-in-time recovery is on").Advise("a restored table has old " +
			"tokens: " +
			"never use it in place of this one while fences remember higher tokens")
	}
	return driver.OK("recovery", "point-in-time recovery is off")
}

// rights tries every operation that a store makes. Writes have a condition that cannot hold:
// nothing is left behind, and a caller that may not write gets that error before the
// condition is checked.
func (s *Store) rights(ctx context.Context) (all []driver.Finding) {
	key := s.key(driver.OwnPrefix + "doctor/" + rand.Text())
	names, never := map[string]string{"#k": s.options.PartitionKey}, aws.String("attribute_exists(#k)")
	shared := driver.Warn
	noBatch := "the history cannot be read"
	if s.options.SharedTable {
		shared, noBatch = driver.Bad, "no lock of a shared table can be taken"
	}
	trials := []struct {
		operation string
		without   func(check, format string, args ...any) driver.Finding
		what      string // does not work without it
		try       func() error
	}{
		{"UpdateItem", driver.Bad, "no lock can be taken, renewed or released", func() error {
			return tried(ctx, s, s.client.UpdateItem, &dynamodb.UpdateItemInput{
				TableName: &s.table, Key: key, ConditionExpression: never, ExpressionAttributeNames: names,
			})
		}},
		{"GetItem", driver.Bad, "no process can wait for a lock or read it", func() error {
			return tried(ctx, s, s.client.GetItem, &dynamodb.GetItemInput{TableName: &s.table, Key: key})
		}},
		{"BatchGetItem", shared, noBatch, func() error {
			return tried(ctx, s, s.client.BatchGetItem, &dynamodb.BatchGetItemInput{
				RequestItems: map[string]types.KeysAndAttributes{s.table: {Keys: []map[string]types.AttributeValue{key}}},
			})
		}},
		{"DeleteItem", driver.Warn, "the oldest records of a full history stay in the table", func() error {
			return tried(ctx, s, s.client.DeleteItem, &dynamodb.DeleteItemInput{
				TableName: &s.table, Key: key, ConditionExpression: never, ExpressionAttributeNames: names,
			})
		}},
		{"Scan", driver.Warn, "tenure status shows only locks that it is given by name", func() error {
			return tried(ctx, s, s.client.Scan, &dynamodb.ScanInput{TableName: &s.table, Limit: aws.Int32(1)})
		}},
		{"DescribeTable", driver.Bad, "the store cannot be opened by its URL", func() error {
			return tried(ctx, s, s.client.DescribeTable, &dynamodb.DescribeTableInput{TableName: &s.table})
		}},
		// Both of its parts need UpdateItem, and the engine must have it.
		{"TransactWriteItems", driver.Bad, "no lock of a shared table can be taken", func() error {
			return tried(ctx, s, s.client.TransactWriteItems, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{
				Update: &types.Update{
					TableName: &s.table, Key: key, ConditionExpression: never, UpdateExpression: aws.String("SET #s = :s"),
					ExpressionAttributeNames:  map[string]string{"#k": s.options.PartitionKey, "#s": attrStamp},
					ExpressionAttributeValues: item{":s": text("doctor")},
				},
			}}})
		}},
	}
	if !s.options.SharedTable {
		trials = trials[:len(trials)-1]
	}
	var granted []string
	for _, trial := range trials {
		err := trial.try()
		api := smithy.APIError(nil)
		if err == nil {
			granted = append(granted, trial.operation)
			continue
		}
		code := ""
		if errors.As(err, &api) {
			code = api.ErrorCode()
		}
		switch code {
		case "AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "NotAuthorized":
			all = append(all, trial.without("permissions", "dynamodb:%s is not granted: %s", trial.operation, trial.what).
				Advise(`grant it: "tenure table policy" prints the whole policy`))
			continue
		case "UnknownOperationException":
			all = append(all, trial.without("permissions", "the endpoint does not know %s: %s", trial.operation, trial.what).
				Advise("it is an emulator that lacks it: use another one"))
			continue
		case "ValidationException":
			all = append(all, driver.Warn("permissions", "%s could not be tried: %s", trial.operation, api.ErrorMessage()).
				Advise("see the keys above"))
		default:
			all = append(all, driver.Warn("permissions", "%s could not be tried: %v", trial.operation, brief(err)).
				Advise("fix that first"))
		}
		break // the others would say the same
	}
	if len(granted) > 0 {
		all = append(all, driver.OK("permissions", "granted: %s", strings.Join(granted, ", ")))
	}
	return all
}

// tried makes a request; its condition, if any, must not hold.
func tried[In, Out any](ctx context.Context, s *Store, op func(context.Context, *In, ...func(*dynamodb.Options)) (*Out, error), in *In) error {
	_, err := call(ctx, s, op, in)
	if _, failed := conditionFailed(err); failed {
		return nil
	}
	return err
}

// foreignItems finds items that Tenure did not write. Tenure's own, below driver.OwnPrefix,
// are no locks.
func (s *Store) foreignItems(ctx context.Context) []driver.Finding {
	in := &dynamodb.ScanInput{TableName: &s.table, Limit: aws.Int32(1000)}
	if sort := s.options.SortKey; sort != "" {
		in.FilterExpression = aws.String("#sort = :sort")
		in.ExpressionAttributeNames = map[string]string{"#sort": sort}
		in.ExpressionAttributeValues = item{":sort": text(s.options.SortValue)}
	}
	var found writers
	for looked := 0; looked < mostLooked; {
		out, err := call(ctx, s, s.client.Scan, in)
		if err != nil {
			return nil // rights has reported it
		}
		for _, is := range out.Items {
			found.count(is, s.options.PartitionKey)
		}
		looked += int(out.ScannedCount)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			break
		}
	}
	return found.findings(s.options)
}

// writers counts which clients have written the items of a table.
type writers struct {
	locks, foreign, others   int
	example, owner, duration string // of a foreign one
	other                    string // that is no lock
}

func (w *writers) count(is item, partitionKey string) {
	text := func(attr string) string {
		if s, ok := is[attr].(*types.AttributeValueMemberS); ok {
			return s.Value
		}
		return ""
	}
	key, version := text(partitionKey), text(attrVersion)
	switch {
	case strings.HasPrefix(key, driver.OwnPrefix):
	case version == "":
		w.others++
		w.other = key
	case version == text(attrStamp):
		w.locks++
	default:
		w.foreign++
		w.example, w.owner, w.duration = key, text(attrOwner), text(attrLease)
	}
}

func (w *writers) findings(o Options) (all []driver.Finding) {
	ours := driver.Counted(w.locks, "lock") + " of Tenure"
	theirs := fmt.Sprintf("%s of another lock client, such as %q of %q", driver.Counted(w.foreign, "lock"), w.example, w.owner)
	switch {
	case w.foreign == 0 && o.SharedTable:
		all = append(all, driver.OK("items", "%s, none of them last written by another lock client", ours).
			Advise("shared=true makes each acquire two requests: leave it out when no other client will come back"))
	case w.foreign == 0:
		all = append(all, driver.OK("items", "%s, and none of another lock client", ours))
	case o.SharedTable:
		all = append(all, driver.OK("items", "%s, and %s", ours, theirs))
	default:
		all = append(all, driver.Warn("items", "%s: it is respected, and never taken, because it keeps no token", theirs).
			Advise("write shared=true in the URLs of all programs that use the table, or stop that client and "+
				"delete its items"))
	}
	dialect := Dynamolock
	if strings.Trim(w.duration, "0123456789") == "" {
		dialect = Java
	}
	if w.foreign > 0 && dialect != o.Dialect {
		all = append(all, driver.Bad("items", "the other client writes leases like %q, and cannot read "+
			"those of dialect %v", w.duration, o.Dialect).
			Advise("write dialect=%v in the URL", dialect))
	}
	if w.others > 0 {
		all = append(all, driver.OK("items", "%s that no lock client has written, such as %q", driver.Counted(w.others, "item"), w.other).
			Advise("give Tenure a table of its own: tenure status reads the whole table, and shows other items "+
				"as unreadable"))
	}
	return all
}

var (
	_ driver.Diagnoser   = (*Store)(nil)
	_ driver.Provisioner = (*Store)(nil)
	_ driver.Granter     = (*Store)(nil)
)

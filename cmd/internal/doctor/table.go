// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/dynamostore"
)

// Table says what is to be thought of a table of DynamoDB, given the options
// of the store that is on it and the heartbeat period of its clients.
func Table(d dynamostore.Description, o dynamostore.Options, heartbeat time.Duration) []Finding {
	all := append([]Finding{tableStatus(d)}, tableKeys(d, o)...)
	return append(all, tableReplicas(d, o), tableTTL(d, o), tableBilling(d, heartbeat), tableClass(d), tableProtection(d), tableRecovery(d))
}

func tableStatus(d dynamostore.Description) Finding {
	f := Finding{"status", OK, "the table is " + d.Status, ""}
	switch types.TableStatus(d.Status) {
	case types.TableStatusActive, types.TableStatusUpdating:
	case types.TableStatusCreating:
		f.Level, f.Advice = Bad, "wait until it is ACTIVE"
	case types.TableStatusInaccessibleEncryptionCredentials:
		f.Level, f.Advice = Bad, "the key that encrypts it cannot be used: fix it in KMS within seven days, after which DynamoDB archives the table"
	case types.TableStatusDeleting, types.TableStatusArchiving, types.TableStatusArchived:
		f.Level, f.Advice = Bad, "no lock can be taken in it: use another table, of another name, since a new one begins its tokens at 1"
	default:
		f.Level, f.Advice = Warn, "see its state in the console of AWS"
	}
	return f
}

func tableKeys(d dynamostore.Description, o dynamostore.Options) []Finding {
	want := o.PartitionKey
	if want == "" {
		want = dynamostore.DefaultPartitionKey
	}
	var all []Finding
	bad := func(finding, advice string) { all = append(all, Finding{"keys", Bad, finding, advice}) }
	if d.PartitionKey != want {
		bad(fmt.Sprintf("the partition key is %q, not %q", d.PartitionKey, want), fmt.Sprintf("write partition-key=%s in the URL", d.PartitionKey))
	}
	switch d.SortKey {
	case o.SortKey:
	case "":
		bad(fmt.Sprintf("there is no sort key, and the URL names %q", o.SortKey), "leave sort-key= and sort-value= out of the URL")
	default:
		bad(fmt.Sprintf("there is a sort key, %q, and the URL names %q", d.SortKey, o.SortKey), fmt.Sprintf("write sort-key=%s&sort-value=VALUE in the URL", d.SortKey))
	}
	if slices.ContainsFunc(d.KeyTypes, func(kind string) bool { return kind != string(types.ScalarAttributeTypeS) }) {
		bad("the keys have the types "+strings.Join(d.KeyTypes, " and "), "locks need a table whose keys have type S")
	}
	if len(all) > 0 {
		return all
	}
	text := fmt.Sprintf("the partition key is %q", d.PartitionKey)
	if d.SortKey != "" {
		text += fmt.Sprintf("; locks have %q in the sort key %q, and share nothing with those that have another value", o.SortValue, d.SortKey)
	}
	return []Finding{{"keys", OK, text, ""}}
}

func tableReplicas(d dynamostore.Description, o dynamostore.Options) Finding {
	where := strings.Join(d.Replicas, ", ")
	switch {
	case len(d.Replicas) == 0:
		return Finding{"replicas", OK, "no other region has a replica", ""}
	case !d.EventualReplicas && o.SharedTable:
		return Finding{
			"replicas", Bad, "the replicas in " + where + " are strongly consistent: such a table has no transactions, which shared=true needs",
			"use a table without replicas while another lock client is there",
		}
	case !d.EventualReplicas:
		return Finding{"replicas", OK, "the replicas in " + where + " are strongly consistent", ""}
	case o.EventualReplicas:
		return Finding{
			"replicas", Warn, "the replicas in " + where + " are only eventually consistent: processes in two regions could hold one lock",
			"see that all processes use " + d.Region + ", after a failover, too",
		}
	}
	return Finding{
		"replicas", Bad, "the replicas in " + where + " are only eventually consistent: processes in two regions could hold one lock",
		"use a table without replicas, or one with strong multi-region consistency; or write eventual-replicas=true in the URL if all processes use one region",
	}
}

// lockAttribute reports whether the items of locks have an attribute. The store
// itself knows: no key may have the name of one.
func lockAttribute(name string) bool {
	_, err := dynamostore.New(dynamodb.New(dynamodb.Options{}), "table", &dynamostore.Options{PartitionKey: name})
	return err != nil
}

func tableTTL(d dynamostore.Description, o dynamostore.Options) Finding {
	switch {
	case d.TTLUnknown:
		return Finding{"ttl", OK, "whether items expire could not be asked", `grant dynamodb:DescribeTimeToLive: "tenure table policy" prints it`}
	case d.TTLAttribute == "":
		return Finding{"ttl", OK, "no item expires", ""}
	case lockAttribute(d.TTLAttribute):
		return Finding{
			"ttl", Bad, fmt.Sprintf("items expire by %q, which locks have: DynamoDB may delete them while they are held, and their tokens begin at 1 again", d.TTLAttribute),
			"switch TTL off",
		}
	}
	if o.SharedTable && !o.TimeToLive {
		return Finding{
			"ttl", Bad, fmt.Sprintf("items expire by %q: the other client may give it to a lock, which is deleted then, and the store does not open", d.TTLAttribute),
			"switch TTL off, or write ttl=true in the URL if no lock has the attribute",
		}
	}
	return Finding{
		"ttl", Warn, fmt.Sprintf("items expire by %q: a lock that is given it, by another client or by hand, is deleted, and its token begins at 1 again", d.TTLAttribute),
		"switch TTL off, unless something else in the table needs it",
	}
}

// tableBilling compares the capacity with what heartbeats need: a write unit
// for each.
func tableBilling(d dynamostore.Description, heartbeat time.Duration) Finding {
	if d.Billing == string(types.BillingModePayPerRequest) {
		return Finding{"billing", OK, "billed on demand", ""}
	}
	holders := int64(float64(d.WriteCapacity) * heartbeat.Seconds())
	f := Finding{
		"billing", OK, fmt.Sprintf("provisioned, with %d read and %d write units a second: %d processes that hold locks, with a heartbeat every %v, use all of the writes", d.ReadCapacity, d.WriteCapacity, holders, heartbeat), "",
	}
	if holders < 20 {
		f.Level, f.Advice = Warn, "an election on top is throttled, and heartbeats with it: raise the write units, or make the table on-demand"
	}
	return f
}

func tableClass(d dynamostore.Description) Finding {
	f := Finding{"class", OK, "the table class is " + d.Class, ""}
	if d.Class == string(types.TableClassStandardInfrequentAccess) {
		f.Level, f.Advice = Warn, "it makes requests dearer, which are what locks cost, and storage cheaper, which they hardly need: use STANDARD"
	}
	return f
}

func tableProtection(d dynamostore.Description) Finding {
	if d.DeletionProtection {
		return Finding{"protection", OK, "the table is protected from deletion", ""}
	}
	return Finding{"protection", OK, "the table is not protected from deletion", "for a table that must last, switch deletion protection on: a new one begins its tokens at 1"}
}

func tableRecovery(d dynamostore.Description) Finding {
	switch {
	case d.RecoveryUnknown:
		return Finding{"recovery", OK, "whether there is point-in-time recovery could not be asked", `grant dynamodb:DescribeContinuousBackups: "tenure table policy" prints it`}
	case d.PointInTimeRecovery:
		return Finding{"recovery", OK, "point-in-time recovery is on", "a restored table has the tokens of its time: never put it in the place of this one while fences remember higher ones"}
	}
	return Finding{"recovery", OK, "point-in-time recovery is off", ""}
}

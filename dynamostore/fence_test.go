// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// fencedWrites are the writes of a user's item, each under a token.
func fencedWrites(client *dynamodb.Client, table string) map[string]func(t *testing.T, token uint64) error {
	key := item{"key": text("account")}
	return map[string]func(t *testing.T, token uint64) error{
		"put": func(t *testing.T, token uint64) error {
			in := &dynamodb.PutItemInput{TableName: &table, Item: item{"key": text("account"), "balance": n("1")}}
			return fenced(t, token, func(f Fence) error { return f.Put(in) }, func() error {
				_, err := client.PutItem(t.Context(), in)
				return err
			})
		},
		"update": func(t *testing.T, token uint64) error {
			in := &dynamodb.UpdateItemInput{
				TableName: &table, Key: key, UpdateExpression: aws.String("REMOVE formerly SET balance = :b"),
				ConditionExpression: aws.String("attribute_not_exists(closed) OR closed = :b"), ExpressionAttributeValues: item{":b": n("2")},
			}
			return fenced(t, token, func(f Fence) error { return f.Update(in) }, func() error {
				_, err := client.UpdateItem(t.Context(), in)
				return err
			})
		},
		"transact put": func(t *testing.T, token uint64) error {
			in := &types.Put{TableName: &table, Item: item{"key": text("account")}}
			return fenced(t, token, func(f Fence) error { return f.TransactPut(in) }, func() error {
				_, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Put: in}}})
				return err
			})
		},
		"transact update": func(t *testing.T, token uint64) error {
			in := &types.Update{TableName: &table, Key: key, UpdateExpression: aws.String("SET balance = :b"), ExpressionAttributeValues: item{":b": n("2")}}
			return fenced(t, token, func(f Fence) error { return f.TransactUpdate(in) }, func() error {
				_, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: in}}})
				return err
			})
		},
		"update without a set": func(t *testing.T, token uint64) error {
			in := &dynamodb.UpdateItemInput{TableName: &table, Key: key, UpdateExpression: aws.String("REMOVE balance")}
			return fenced(t, token, func(f Fence) error { return f.Update(in) }, func() error {
				_, err := client.UpdateItem(t.Context(), in)
				return err
			})
		},
		"update of nothing": func(t *testing.T, token uint64) error {
			in := &dynamodb.UpdateItemInput{TableName: &table, Key: key}
			return fenced(t, token, func(f Fence) error { return f.Update(in) }, func() error {
				_, err := client.UpdateItem(t.Context(), in)
				return err
			})
		},
	}
}

func fenced(t *testing.T, token uint64, fence func(Fence) error, write func() error) error {
	t.Helper()
	f := Fence{Token: token}
	if err := fence(f); err != nil {
		t.Fatal(err)
	}
	return f.Explain(write())
}

func TestFence(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		for name, write := range fencedWrites(connect(t, e.URL), newTable(t, e, nil)) {
			if e.NoTransactions && strings.HasPrefix(name, "transact") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				client, table := connect(t, e.URL), newTable(t, e, nil)
				write = fencedWrites(client, table)[name]
				for _, step := range []struct {
					token uint64
					stale bool
				}{{3, false}, {3, false}, {2, true}, {4, false}, {3, true}, {1, true}, {4, false}} {
					err := write(t, step.token)
					switch {
					case !step.stale && err != nil:
						t.Errorf("under token %d: %v", step.token, err)
					case step.stale && e.NoOldOnFailure: // it cannot be told why
						if failed := (*types.ConditionalCheckFailedException)(nil); !errors.As(err, &failed) {
							t.Errorf("under stale token %d: %v", step.token, err)
						}
					case step.stale:
						stale := (*StaleError)(nil)
						if !errors.Is(err, ErrStale) || !errors.As(err, &stale) || stale.Token != step.token || stale.Highest <= step.token {
							t.Errorf("under stale token %d: %v", step.token, err)
						}
					}
				}
				if it := readItem(t, e.URL, table, item{"key": text("account")}); typeOf(it[DefaultFenceAttribute]) != "a number (N)" || it[DefaultFenceAttribute].(*types.AttributeValueMemberN).Value != "4" {
					t.Errorf("the item remembers %v, want 4", it[DefaultFenceAttribute])
				}
				in := &dynamodb.DeleteItemInput{TableName: &table, Key: item{"key": text("account")}}
				if err := (Fence{Token: 3}).Delete(in); err != nil {
					t.Fatal(err)
				}
				if _, err := client.DeleteItem(t.Context(), in); err == nil {
					t.Error("a delete under a stale token passed")
				}
			})
		}
	})
}

// TestFenceKeepsTheCallersCondition has that fail, which is not staleness.
func TestFenceKeepsTheCallersCondition(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		plantItem(t, e.URL, table, item{"key": text("account"), "closed": n("5")})
		update := fencedWrites(connect(t, e.URL), table)["update"]
		err := update(t, 9)
		if failed := (*types.ConditionalCheckFailedException)(nil); !errors.As(err, &failed) || errors.Is(err, ErrStale) {
			t.Errorf("with the caller's condition failed: %v", err)
		}
		if it := readItem(t, e.URL, table, item{"key": text("account")}); it[DefaultFenceAttribute] != nil {
			t.Errorf("it was written all the same: %v", it)
		}
	})
}

func TestFenceRefusesMistakes(t *testing.T) {
	in := &dynamodb.PutItemInput{Item: item{"key": text("k")}}
	if err := (Fence{}).Put(in); err == nil {
		t.Error("a fence without a token was accepted")
	}
	if err := (Fence{Token: 1}).Put(in); err != nil {
		t.Fatal(err)
	}
	if err := (Fence{Token: 1}).Put(in); err == nil {
		t.Error("a second fence on one write was accepted")
	}
}

func TestFenceItem(t *testing.T) {
	enginetest.EachDynamoDB(t, func(t *testing.T, e enginetest.DynamoDB) {
		table := newTable(t, e, nil)
		store, client := open(t, e.URL, table, nil), connect(t, e.URL)
		raise := func(token uint64) *FenceItem {
			f, err := store.RaiseFence(t.Context(), "reports", token)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		old := raise(3)
		raise(3) // of whom the first reply was lost
		transact := func(f *FenceItem, key string) error {
			_, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
				f.Check(), {Put: &types.Put{TableName: &table, Item: item{"key": text(key)}}},
			}})
			return f.Explain(err)
		}
		if !e.NoTransactions {
			if err := transact(old, "a"); err != nil {
				t.Errorf("under the highest token: %v", err)
			}
		}
		now := raise(4)
		_, err := store.RaiseFence(t.Context(), "reports", 3)
		if stale := (*StaleError)(nil); !errors.Is(err, ErrStale) || !errors.As(err, &stale) || stale.Highest != 4 {
			t.Errorf("raising to an older token: %v", err)
		}
		if page, err := store.List(t.Context(), "tenure/", ""); err != nil || len(page.Unreadable)+len(page.Records) > 0 {
			t.Errorf("List shows the fence: %+v, %v", page, err)
		}
		if e.NoTransactions {
			return
		}
		if err := transact(old, "b"); !errors.Is(err, ErrStale) {
			t.Errorf("under the token before: %v", err)
		}
		if readItem(t, e.URL, table, item{"key": text("b")}) != nil {
			t.Error("a stale transaction wrote")
		}
		if err := transact(now, "c"); err != nil {
			t.Errorf("under the new token: %v", err)
		}
	})
}

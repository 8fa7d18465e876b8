// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
)

// Each process has a client of its own. The configuration is from
// config.LoadDefaultConfig, as for every other service.
func Example() {
	ctx := context.Background()
	var cfg aws.Config // of config.LoadDefaultConfig(ctx)

	store, err := dynamostore.Open(ctx, dynamodb.NewFromConfig(cfg), "locks", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
		// One process at a time is here. ctx ends when it must stop.
		if err := lease.Check(); err != nil {
			return err // ask before every side effect
		}
		fmt.Println("writing the report under token", lease.Token())
		return nil
	})
	fmt.Println(err)
}

// An attribute of the program's own, set with each grant, for an index.
func ExampleOptions_attributes() {
	client := dynamodb.NewFromConfig(aws.Config{})
	team := func(lock string) string { return strings.SplitN(lock, "/", 2)[0] }

	store, err := dynamostore.New(client, "locks", &dynamostore.Options{
		Attributes: func(rec driver.Record) map[string]types.AttributeValue {
			return map[string]types.AttributeValue{"team": &types.AttributeValueMemberS{Value: team(rec.Key)}}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}

// A program that holds many locks keeps as many connections as it has requests
// under way; the SDK keeps ten by default, and opens and closes the others.
func ExampleNew() {
	var cfg aws.Config

	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256 // tenure.Options.MaxInFlight
		})
	})
	store, err := dynamostore.New(client, "locks", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}

// A table is created once, when the service is set up.
func ExampleCreateTable() {
	ctx := context.Background()
	var cfg aws.Config

	err := dynamostore.CreateTable(ctx, dynamodb.NewFromConfig(cfg), "locks", &dynamostore.TableOptions{
		DeletionProtection: true,
	})
	if err != nil && !errors.Is(err, dynamostore.ErrTableExists) {
		log.Fatal(err)
	}
}

// A table that the lock client for Java uses as well, with a sort key.
func ExampleOpen_sharedTable() {
	ctx := context.Background()
	var cfg aws.Config

	store, err := dynamostore.Open(ctx, dynamodb.NewFromConfig(cfg), "lockTable", &dynamostore.Options{
		SortKey: "kind", SortValue: "report", // if the table has one
		Dialect:     dynamostore.Java, // or Dynamolock: the dialect of the other client
		SharedTable: true,             // as long as the other client runs
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}

// The item remembers the highest token under which it was written, and refuses
// lower ones.
func ExampleFence() {
	ctx := context.Background()
	var cfg aws.Config
	db := dynamodb.NewFromConfig(cfg)
	var lease *tenure.Lease // of Run, or Acquire

	post := func() error {
		fence := dynamostore.Fence{Token: lease.Token()}
		in := &dynamodb.UpdateItemInput{
			TableName:                 aws.String("ledger"),
			Key:                       map[string]types.AttributeValue{"account": &types.AttributeValueMemberS{Value: "7"}},
			UpdateExpression:          aws.String("SET body = :body"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":body": &types.AttributeValueMemberS{Value: "posted"}},
		}
		if err := fence.Update(in); err != nil {
			return err
		}
		_, err := db.UpdateItem(ctx, in)
		return fence.Explain(err) // a *StaleError if another holder has written
	}
	if err := post(); errors.Is(err, dynamostore.ErrStale) {
		log.Print("stop: ", err)
	}
}

// A transaction of several items goes through only while no newer holder has
// raised the fence.
func ExampleStore_RaiseFence() {
	ctx := context.Background()
	var cfg aws.Config
	db := dynamodb.NewFromConfig(cfg)
	store, err := dynamostore.Open(ctx, db, "locks", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	var debit, credit types.TransactWriteItem

	err = client.Run(ctx, "ledger", nil, func(ctx context.Context, lease *tenure.Lease) error {
		fence, err := store.RaiseFence(ctx, lease.Name(), lease.Token())
		if err != nil {
			return err // a *StaleError if another holder has begun
		}
		_, err = db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{fence.Check(), debit, credit},
		})
		return fence.Explain(err)
	})
	if errors.Is(err, dynamostore.ErrStale) {
		log.Print("another holder has begun: ", err)
	}
}

// What the other clients call a lease of 20 s, a heartbeat of 5 s and 1 s of
// additional time to wait.
func Example_moving() {
	ctx := context.Background()
	var store *dynamostore.Store

	client, err := tenure.New(store, &tenure.Options{
		LeaseDuration:   20 * time.Second,
		HeartbeatPeriod: 5 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	lease, err := client.Acquire(ctx, "reports", &tenure.AcquireOptions{AdditionalWait: time.Second})
	if errors.Is(err, tenure.ErrHeld) {
		return // a living process has it
	}
	if err != nil {
		log.Fatal(err)
	}
	// The work ends when lease.Context() does, and asks lease.Check() before
	// every side effect.
	if err := lease.Release(ctx); err != nil {
		log.Print(err) // the lease was lost before the work was done
	}
}

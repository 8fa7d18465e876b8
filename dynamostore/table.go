// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tenurelock/tenure/driver"
)

// TableOptions are the settings of [CreateTable]. The zero value is good.
type TableOptions struct {
	// PartitionKey and SortKey are the names of the keys, which have type S. An
	// empty PartitionKey means "key"; an empty SortKey means no sort key.
	PartitionKey, SortKey string
	// DeletionProtection has DynamoDB refuse to delete the table.
	DeletionProtection bool
	// PointInTimeRecovery has DynamoDB keep a backup of the last 35 days, at a
	// price for each GB. A restored table has the tokens of its time: they rise
	// from there again, and tokens that were given out since are given out a
	// second time.
	PointInTimeRecovery bool
	// Tags are put on the table.
	Tags map[string]string
}

// CreateTable creates a table for locks, billed on demand, and waits until it can
// be used, or until ctx is done. It returns an error that matches [ErrTableExists]
// if a table of that name exists, and leaves it as it is.
//
// It needs the permissions dynamodb:CreateTable and dynamodb:DescribeTable, and
// those that the options need.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string, options *TableOptions) error {
	s, err := New(client, table, nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it returns nil
	var o TableOptions
	if options != nil {
		o = *options
	}
	if o.PartitionKey == "" {
		o.PartitionKey = DefaultPartitionKey
	}
	if o.SortKey == o.PartitionKey || ownAttributes[o.SortKey] || ownAttributes[o.PartitionKey] {
		return fmt.Errorf("table %q: keys %q and %q: they must differ, and must not be any of %s", table, o.PartitionKey, o.SortKey, strings.Join(ownNames(), ", "))
	}
	if _, err := call(ctx, s, client.CreateTable, o.input(table)); err != nil {
		if inUse := (*types.ResourceInUseException)(nil); errors.As(err, &inUse) {
			return fmt.Errorf("%w: %q", ErrTableExists, table)
		}
		return s.fault(ctx, err)
	}
	if err := s.awaitActive(ctx); err != nil {
		// Not the store's marks: the table exists.
		return fmt.Errorf("dynamodb table %q was created, but is not ready: %w", table, brief(err))
	}
	if !o.PointInTimeRecovery {
		return nil
	}
	if err := s.startRecovery(ctx); err != nil {
		return fmt.Errorf("dynamodb table %q was created, but has no point-in-time recovery, switch it on by hand: %w", table, brief(err))
	}
	return nil
}

// startRecovery switches point-in-time recovery on. A new table refuses that
// for some time, while its backups are being made ready.
func (s *Store) startRecovery(ctx context.Context) error {
	const attempts, pause = 60, 2 * time.Second
	for attempt := 1; ; attempt++ {
		_, err := call(ctx, s, s.client.UpdateContinuousBackups, &dynamodb.UpdateContinuousBackupsInput{
			TableName:                        &s.table,
			PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
		})
		if early := (*types.ContinuousBackupsUnavailableException)(nil); attempt == attempts || !errors.As(err, &early) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// ErrTableExists is returned by [CreateTable] if there is a table of that name.
var ErrTableExists = errors.New("table already exists")

func (o *TableOptions) input(table string) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{TableName: &table, BillingMode: types.BillingModePayPerRequest}
	if o.DeletionProtection {
		in.DeletionProtectionEnabled = aws.Bool(true)
	}
	add := func(name string, kind types.KeyType) {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &name, KeyType: kind})
	}
	add(o.PartitionKey, types.KeyTypeHash)
	if o.SortKey != "" {
		add(o.SortKey, types.KeyTypeRange)
	}
	for name, value := range o.Tags {
		in.Tags = append(in.Tags, types.Tag{Key: &name, Value: &value})
	}
	return in
}

// awaitActive waits until the table can be used. A table that was just created
// may not even be found for a moment.
func (s *Store) awaitActive(ctx context.Context) error {
	return dynamodb.NewTableExistsWaiter(s.client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 100*time.Millisecond, 5*time.Second
	}).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &s.table}, 10*time.Minute)
}

// Description is what [Store.Inspect] finds out about a table.
type Description struct {
	Name   string `json:"table"`
	Region string `json:"region"`
	ARN    string `json:"arn"`
	// Status is "ACTIVE" when the table can be used.
	Status string `json:"status"`
	// PartitionKey and SortKey are the names of its keys, and KeyTypes their
	// types in that order, "S" where they are right for locks.
	PartitionKey string   `json:"partition_key"`
	SortKey      string   `json:"sort_key,omitempty"`
	KeyTypes     []string `json:"key_types"`
	// Billing is "PAY_PER_REQUEST" or "PROVISIONED", with the capacity units a
	// second.
	Billing       string `json:"billing"`
	ReadCapacity  int64  `json:"read_units_per_second,omitempty"`
	WriteCapacity int64  `json:"write_units_per_second,omitempty"`
	// Class is "STANDARD" or "STANDARD_INFREQUENT_ACCESS".
	Class            string   `json:"class"`
	Replicas         []string `json:"replicas"`
	EventualReplicas bool     `json:"eventual_replicas"` // they are not strongly consistent
	// TTLAttribute is the attribute by which items expire, "" if none does, and nil if it could
	// not be read. PointInTimeRecovery is nil likewise.
	TTLAttribute        *string `json:"ttl_attribute"`
	DeletionProtection  bool    `json:"deletion_protection"`
	PointInTimeRecovery *bool   `json:"point_in_time_recovery"`
	StreamActive        bool    `json:"stream"`
	// Items and Bytes are as of some hours ago.
	Items int64 `json:"items"`
	Bytes int64 `json:"size_bytes"`
	// Findings are the assessment of the table, if requested.
	Findings []driver.Finding `json:"findings"`
}

// Inspect asks DynamoDB about the table: three requests of its control plane. It needs the
// permission dynamodb:DescribeTable; without dynamodb:DescribeTimeToLive and
// dynamodb:DescribeContinuousBackups their results stay unknown.
func (s *Store) Inspect(ctx context.Context) (*Description, error) {
	d, err := s.describe(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.describeTTL(ctx, d); err != nil {
		return nil, err
	}
	backups, err := call(ctx, s, s.client.DescribeContinuousBackups, &dynamodb.DescribeContinuousBackupsInput{TableName: &s.table})
	switch {
	case err != nil && !unanswered(err):
		return nil, s.fault(ctx, err)
	case err == nil:
		d.PointInTimeRecovery = new(bool)
		if b := backups.ContinuousBackupsDescription; b != nil && b.PointInTimeRecoveryDescription != nil {
			*d.PointInTimeRecovery = b.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled
		}
	}
	return d, nil
}

func (s *Store) describeTTL(ctx context.Context, d *Description) error {
	ttl, err := call(ctx, s, s.client.DescribeTimeToLive, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	switch {
	case err != nil && !unanswered(err):
		return s.fault(ctx, err)
	case err == nil:
		d.TTLAttribute = new(string)
		if is := ttl.TimeToLiveDescription; is != nil &&
			(is.TimeToLiveStatus == types.TimeToLiveStatusEnabled || is.TimeToLiveStatus == types.TimeToLiveStatusEnabling) {
			*d.TTLAttribute = aws.ToString(is.AttributeName)
		}
	}
	return nil
}

// describe makes the one request that must succeed.
func (s *Store) describe(ctx context.Context) (*Description, error) {
	out, err := call(ctx, s, s.client.DescribeTable, &dynamodb.DescribeTableInput{TableName: &s.table})
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	t := out.Table
	if t == nil {
		return nil, fmt.Errorf("dynamodb table %q: the answer has no description", s.table)
	}
	d := &Description{
		Name: s.table, Region: s.client.Options().Region, ARN: aws.ToString(t.TableArn), Status: string(t.TableStatus),
		Billing: string(types.BillingModeProvisioned), Class: string(types.TableClassStandard),
		DeletionProtection: aws.ToBool(t.DeletionProtectionEnabled),
		Items:              aws.ToInt64(t.ItemCount), Bytes: aws.ToInt64(t.TableSizeBytes),
		Replicas:     []string{},
		StreamActive: t.StreamSpecification != nil && aws.ToBool(t.StreamSpecification.StreamEnabled),
	}
	if t.BillingModeSummary != nil && t.BillingModeSummary.BillingMode != "" {
		d.Billing = string(t.BillingModeSummary.BillingMode)
	}
	if t.ProvisionedThroughput != nil {
		d.ReadCapacity, d.WriteCapacity = aws.ToInt64(t.ProvisionedThroughput.ReadCapacityUnits), aws.ToInt64(t.ProvisionedThroughput.WriteCapacityUnits)
	}
	if t.TableClassSummary != nil {
		d.Class = string(t.TableClassSummary.TableClass)
	}
	for _, replica := range t.Replicas {
		// Some descriptions list the table's own region, too.
		if region := aws.ToString(replica.RegionName); !strings.Contains(d.ARN, ":dynamodb:"+region+":") {
			d.Replicas = append(d.Replicas, region)
		}
	}
	d.EventualReplicas = len(d.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong
	d.keys(t)
	return d, nil
}

func (d *Description) keys(t *types.TableDescription) {
	for _, kind := range []types.KeyType{types.KeyTypeHash, types.KeyTypeRange} {
		for _, key := range t.KeySchema {
			if key.KeyType != kind {
				continue
			}
			name := aws.ToString(key.AttributeName)
			if kind == types.KeyTypeHash {
				d.PartitionKey = name
			} else {
				d.SortKey = name
			}
			i := slices.IndexFunc(t.AttributeDefinitions, func(a types.AttributeDefinition) bool { return aws.ToString(a.AttributeName) == name })
			if i >= 0 {
				d.KeyTypes = append(d.KeyTypes, string(t.AttributeDefinitions[i].AttributeType))
			}
		}
	}
}

// oddKeys reports whether a key has another type than locks need.
func (d *Description) oddKeys() bool {
	return slices.ContainsFunc(d.KeyTypes, func(kind string) bool { return kind != string(types.ScalarAttributeTypeS) })
}

// unanswered reports whether an optional request was refused: the caller
// lacks the permission, or the engine lacks the operation.
func unanswered(err error) bool {
	api := smithy.APIError(nil)
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "UnknownOperationException", "ValidationException":
		return true
	}
	return false
}

// fit returns an error unless the table fits the options of a store.
func (d *Description) fit(o *Options) error {
	problem := func(format string, args ...any) error {
		return driver.Permanent(fmt.Errorf("dynamodb table %q: %s", d.Name, fmt.Sprintf(format, args...)))
	}
	switch {
	case d.Status == string(types.TableStatusDeleting), d.Status == string(types.TableStatusArchived), d.Status == string(types.TableStatusArchiving):
		return problem("it is %s", d.Status)
	case d.PartitionKey != o.PartitionKey:
		return problem("its partition key is %q, not %q; set PartitionKey (partition-key= in a URL)", d.PartitionKey, o.PartitionKey)
	case d.SortKey != o.SortKey && d.SortKey == "":
		return problem("it has no sort key; leave out SortKey and SortValue")
	case d.SortKey != o.SortKey:
		return problem("its sort key is %q, not %q; set SortKey and SortValue (sort-key= and sort-value= in a URL)", d.SortKey, o.SortKey)
	case d.oddKeys():
		return problem("its keys have the types %s; they must be S", strings.Join(d.KeyTypes, " and "))
	case d.EventualReplicas && !o.EventualReplicas:
		return problem("its replicas in %s are only eventually consistent: processes in two regions could hold one lock; "+
			"use a table without replicas, or one with strong multi-region consistency, or set EventualReplicas (eventual-replicas=true in a URL) if all processes use one region",
			strings.Join(d.Replicas, ", "))
	case d.TTLAttribute != nil && *d.TTLAttribute != "" && o.SharedTable && !o.TimeToLive:
		return problem("its items expire by attribute %q: an item of the other client that has it would be deleted while Tenure holds the lock; "+
			"switch TTL off, or set TimeToLive (ttl=true in a URL) if no lock has the attribute", *d.TTLAttribute)
	case len(d.Replicas) > 0 && !d.EventualReplicas && o.SharedTable:
		return problem("it is a global table with strong multi-region consistency, which has no transactions; SharedTable needs them")
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/dynamostore"
)

// onDynamoDB shows the table.
func (f *describeTableCmd) onDynamoDB(a atTable) error {
	options, err := flags.WithDefaults(tenure.Options{})
	if err != nil {
		return err
	}
	client, err := a.connect()
	if err != nil {
		return err
	}
	d, err := a.describe(client)
	if err != nil {
		return err
	}
	findings := doctor.Table(d, a.url.Options, options.HeartbeatPeriod)
	return f.show(a.console, tableJSONOf(d, findings), tableText(d, findings), findings)
}

// tableText lays a description out, a value on each line, and behind it what
// is wrong with it.
func tableText(d dynamostore.Description, findings []doctor.Finding) string {
	t := tableLines{findings: findings}
	line := t.line
	onOff := func(on, unknown bool) string {
		switch {
		case unknown:
			return "not known: it may not be asked for, or the endpoint does not know it"
		case on:
			return "on"
		}
		return "off"
	}
	key := func(i int, name string) string {
		if name == "" || i >= len(d.KeyTypes) {
			return name
		}
		return name + " (" + d.KeyTypes[i] + ")"
	}
	line("table", d.Name, "")
	line("region", d.Region, "")
	line("ARN", d.ARN, "")
	line("status", d.Status, "status")
	line("partition key", key(0, d.PartitionKey), "")
	line("sort key", key(1, d.SortKey), "keys")
	billing := "on demand"
	if d.Billing != string(types.BillingModePayPerRequest) {
		billing = fmt.Sprintf("provisioned: %d read and %d write units a second", d.ReadCapacity, d.WriteCapacity)
	}
	line("billing", billing, "billing")
	line("class", d.Class, "class")
	replicas := strings.Join(d.Replicas, ", ")
	if len(d.Replicas) > 0 && !d.EventualReplicas {
		replicas += " (strongly consistent)"
	}
	line("replicas", replicas, "replicas")
	ttl := onOff(d.TTLAttribute != "", d.TTLUnknown)
	if d.TTLAttribute != "" {
		ttl += ": " + d.TTLAttribute
	}
	line("TTL", ttl, "ttl")
	line("deletion protection", onOff(d.DeletionProtection, false), "protection")
	line("point-in-time recovery", onOff(d.PointInTimeRecovery, d.RecoveryUnknown), "recovery")
	line("stream", onOff(d.StreamActive, false), "")
	line("items", fmt.Sprintf("%d, %d kB (some hours ago)", d.Items, (d.Bytes+1023)>>10), "")
	return t.String()
}

// tableJSON is a description as --json has it.
type tableJSON struct {
	Table              string           `json:"table"`
	Region             string           `json:"region"`
	ARN                string           `json:"arn"`
	Status             string           `json:"status"`
	PartitionKey       string           `json:"partition_key"`
	SortKey            string           `json:"sort_key,omitempty"`
	KeyTypes           []string         `json:"key_types"`
	Billing            string           `json:"billing"`
	ReadUnits          int64            `json:"read_units_per_second,omitempty"`
	WriteUnits         int64            `json:"write_units_per_second,omitempty"`
	Class              string           `json:"class"`
	Replicas           []string         `json:"replicas"`
	EventualReplicas   bool             `json:"eventual_replicas"`
	TTLAttribute       *string          `json:"ttl_attribute"` // null: not known
	DeletionProtection bool             `json:"deletion_protection"`
	Recovery           *bool            `json:"point_in_time_recovery"` // null: not known
	Stream             bool             `json:"stream"`
	Items              int64            `json:"items"`
	Bytes              int64            `json:"size_bytes"`
	Findings           []doctor.Finding `json:"findings"`
}

func tableJSONOf(d dynamostore.Description, findings []doctor.Finding) tableJSON {
	t := tableJSON{
		Table: d.Name, Region: d.Region, ARN: d.ARN, Status: d.Status, PartitionKey: d.PartitionKey, SortKey: d.SortKey, KeyTypes: d.KeyTypes,
		Billing: d.Billing, ReadUnits: d.ReadCapacity, WriteUnits: d.WriteCapacity, Class: d.Class,
		Replicas: append([]string{}, d.Replicas...), EventualReplicas: d.EventualReplicas,
		DeletionProtection: d.DeletionProtection, Stream: d.StreamActive, Items: d.Items, Bytes: d.Bytes, Findings: findings,
	}
	if !d.TTLUnknown {
		t.TTLAttribute = &d.TTLAttribute
	}
	if !d.RecoveryUnknown {
		t.Recovery = &d.PointInTimeRecovery
	}
	return t
}

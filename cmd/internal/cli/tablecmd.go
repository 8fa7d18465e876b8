// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// tableCmd is tenure table: the table of a store on DynamoDB or in PostgreSQL, and what its
// users must be granted, in Kubernetes and in a bucket, too. What each command does on an engine stands in
// a file of its own.
type tableCmd struct {
	Create   createTableCmd   `cmd:""`
	Describe describeTableCmd `cmd:""`
	Policy   policyCmd        `cmd:""`
}

// tableFlags are those of all three.
type tableFlags struct {
	storeFlags
	Quiet bool `short:"q"`
}

// createTableCmd is tenure table create. The flags of DynamoDB come first.
type createTableCmd struct {
	tableFlags
	PartitionKey       *string `placeholder:"NAME"`
	SortKey            *string `placeholder:"NAME"`
	DeletionProtection bool
	Recovery           bool
	Tag                []string `sep:"none" placeholder:"NAME=VALUE"`

	Print bool
}

// Run makes the table, or sees that there is one as it is asked for.
func (f *createTableCmd) Run(c *console, rest operands) error {
	return f.on(c, rest, false,
		[]given{{"--print", f.Print}},
		[]given{
			{"--partition-key", f.PartitionKey != nil},
			{"--sort-key", f.SortKey != nil},
			{"--deletion-protection", f.DeletionProtection},
			{"--recovery", f.Recovery},
			{"--tag", len(f.Tag) > 0},
		}, f.onDynamoDB, f.onPostgres, noTable, noTableInBucket)
}

// describeTableCmd is tenure table describe.
type describeTableCmd struct {
	tableFlags
	JSON bool `name:"json"`
}

// Run shows the table.
func (f *describeTableCmd) Run(c *console, rest operands) error {
	return f.on(c, rest, f.JSON, nil, nil, f.onDynamoDB, f.onPostgres, noTable, noTableInBucket)
}

// policyCmd is tenure table policy.
type policyCmd struct {
	tableFlags
	ReadOnly bool    `name:"read-only"`
	Offline  bool    `name:"offline"`
	Role     *string `placeholder:"NAME"`
}

// Run prints the least policy.
func (f *policyCmd) Run(c *console, rest operands) error {
	return f.on(c, rest, false, []given{{"--role", f.Role != nil}}, nil, f.onDynamoDB, f.onPostgres, f.onKubernetes, f.onBucket)
}

// given says whether a flag was given that only one engine has.
type given struct {
	flag string
	is   bool
}

// refuse returns an error if a flag of another engine was given.
func refuse(flags []given, engine string) error {
	if i := slices.IndexFunc(flags, func(g given) bool { return g.is }); i >= 0 {
		return usage("%s is for a table of %s: leave it out", flags[i].flag, engine)
	}
	return nil
}

// on does what the command does on the engine of the store.
func (f *tableFlags) on(c *console, rest operands, json bool, ofPostgres, ofDynamoDB []given,
	onDynamoDB func(atTable) error, onPostgres func(atDatabase) error, onKubernetes func(atCluster) error, onBucket func(atBucket) error,
) error {
	c.set(outputFlags{JSON: json, Quiet: f.Quiet})
	if rest.given {
		return usage(`this command runs nothing: leave out "--" and what follows`)
	}
	if f.Store == nil && os.Getenv("TENURE_STORE") == "" {
		return usage("no table is named: write --store 'dynamodb://TABLE?region=REGION' or --store 'postgres://USER@HOST/DATABASE', or set TENURE_STORE")
	}
	at, err := f.location(c, os.Getenv)
	if err != nil {
		return err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	defer stop()
	run := &tableRun{console: c, at: at, ctx: ctx}
	if url, ok := at.DynamoDB(); ok {
		if err := refuse(ofPostgres, "PostgreSQL"); err != nil {
			return err
		}
		return onDynamoDB(atTable{run, url})
	}
	if url, ok := at.Postgres(); ok {
		if err := refuse(ofDynamoDB, "DynamoDB"); err != nil {
			return err
		}
		return onPostgres(atDatabase{run, url})
	}
	if url, ok := at.Kubernetes(); ok {
		return onKubernetes(atCluster{run, url})
	}
	if url, ok := at.S3(); ok {
		return onBucket(atBucket{run, url})
	}
	return usage("%s is no table of DynamoDB or PostgreSQL: write --store 'dynamodb://TABLE?region=REGION' or --store 'postgres://USER@HOST/DATABASE'", at.Shown())
}

// tableRun is a command on a table under way.
type tableRun struct {
	console *console
	at      storeurl.Location
	ctx     context.Context //nolint:containedctx // it is one command, which a signal ends
}

// failed returns what to end with when the engine has failed, or a signal came.
func (a *tableRun) failed(err error) error {
	if sig := (signaled{}); errors.As(context.Cause(a.ctx), &sig) {
		return sig
	}
	return storeFailed(err)
}

// print writes to standard output what was asked for.
func (a *tableRun) print(text []byte) error {
	if _, err := a.console.stdout.Write(text); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// show prints a description, as an object or as text, and ends with a status of its own if
// something is bad.
func (f *describeTableCmd) show(c *console, object any, text string, findings []doctor.Finding) (err error) {
	if f.JSON {
		err = writeJSON(c.stdout, object)
	} else {
		_, err = fmt.Fprint(c.stdout, text)
	}
	if err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	if slices.ContainsFunc(findings, isBad) {
		return ended(statusBad)
	}
	return nil
}

func isBad(f doctor.Finding) bool { return f.Level == doctor.Bad }

// tableLines lays a description out, a value on each line, and behind it what is wrong with
// it.
type tableLines struct {
	strings.Builder
	findings []doctor.Finding
}

// line adds a value, and the findings of a check.
func (t *tableLines) line(name, value, check string) {
	if value == "" {
		value = "none"
	}
	fmt.Fprintf(t, "%-24s%s\n", name, printable.Text(value))
	for _, f := range t.findings {
		if f.Check != check || f.Level == doctor.OK {
			continue
		}
		text := fmt.Sprintf("%s: %s", f.Level, f.Finding)
		if f.Advice != "" {
			text += "; " + f.Advice
		}
		fmt.Fprintf(t, "  %s\n", printable.Text(text))
	}
}

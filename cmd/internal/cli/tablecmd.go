// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
)

// tableCmd is tenure table: the table of a store on DynamoDB, in PostgreSQL or in MySQL, the store in Redis,
// and what their users must be granted, in Kubernetes and in a bucket, too. What is done on an engine its
// store knows: see [driver.Provisioner] and [driver.Granter].
type tableCmd struct {
	Create   createTableCmd   `cmd:""`
	Describe describeTableCmd `cmd:""`
	Policy   policyCmd        `cmd:""`
}

type tableFlags struct {
	storeFlags
	Quiet bool `short:"q"`
}

// createTableCmd is tenure table create. The flags of DynamoDB come first.
type createTableCmd struct {
	tableFlags
	PartitionKey       *string `placeholder:"NAME" empty:"name the key, or leave the flag out"`
	SortKey            *string `placeholder:"NAME" empty:"name the key, or leave the flag out"`
	DeletionProtection bool
	Recovery           bool
	Tag                []string `sep:"none" placeholder:"NAME=VALUE"`

	Print bool
}

// Run creates the table, or checks that it exists as requested.
func (f *createTableCmd) Run(c *console) error {
	ctx, at, stop, err := f.begin(c, false)
	if err != nil {
		return err
	}
	defer stop()
	flag, engine := "", "DynamoDB"
	switch {
	case f.Print && at.Scheme() != "postgres" && !storeurl.IsMySQL(at.Scheme()):
		flag, engine = "--print", "PostgreSQL and MySQL"
	case at.Scheme() == "dynamodb":
	case f.PartitionKey != nil:
		flag = "--partition-key"
	case f.SortKey != nil:
		flag = "--sort-key"
	case f.DeletionProtection:
		flag = "--deletion-protection"
	case f.Recovery:
		flag = "--recovery"
	case len(f.Tag) > 0:
		flag = "--tag"
	}
	if flag != "" {
		return usage("%s is for a table of %s: leave it out", flag, engine)
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	var did string
	err = onTable(ctx, at, func(p driver.Provisioner) (err error) {
		did, err = p.Create(ctx, o)
		return err
	})
	switch {
	case err != nil:
		return err
	case f.Print:
		c.put(did + "\n")
	default:
		c.say("%s", did)
	}
	return nil
}

func (f *createTableCmd) options() (driver.CreateOptions, error) {
	o := driver.CreateOptions{
		PartitionKey: valueOf(f.PartitionKey), SortKey: valueOf(f.SortKey),
		Print: f.Print, DeletionProtection: f.DeletionProtection, Recovery: f.Recovery, Tags: map[string]string{},
	}
	for _, tag := range f.Tag {
		name, value, found := strings.Cut(tag, "=")
		if _, twice := o.Tags[name]; !found || name == "" || twice {
			return o, usage("--tag %.40q: write NAME=VALUE, each name once", tag)
		}
		o.Tags[name] = value
	}
	return o, nil
}

type describeTableCmd struct {
	tableFlags
	JSON bool `name:"json"`
}

// Run shows the table, and ends with a status of its own if something is bad.
func (f *describeTableCmd) Run(c *console) error {
	ctx, at, stop, err := f.begin(c, false)
	if err != nil {
		return err
	}
	defer stop()
	options, err := flags.WithDefaults(tenure.Options{})
	if err != nil {
		return err
	}
	var d driver.Description
	err = onTable(ctx, at, func(p driver.Provisioner) (err error) {
		d, err = p.Describe(ctx, driver.Timing{Heartbeat: options.HeartbeatPeriod})
		return err
	})
	switch {
	case err != nil:
		return err
	case f.JSON:
		c.object(d.Object)
	default:
		c.put(describedText(d))
	}
	if slices.ContainsFunc(d.Findings, func(f driver.Finding) bool { return f.Level == driver.LevelBad }) {
		return ended(statusBad)
	}
	return nil
}

// describedText formats a description: a property on each line, and after it what is wrong
// with it.
func describedText(d driver.Description) string {
	var b strings.Builder
	for _, p := range d.Properties {
		if p.Value == "" {
			p.Value = "none"
		}
		fmt.Fprintf(&b, "%-24s%s\n", p.Name, printable.Text(p.Value))
		for _, f := range d.Findings {
			if f.Check != p.Check || f.Level == driver.LevelOK {
				continue
			}
			text := fmt.Sprintf("%s: %s", f.Level, f.Finding)
			if f.Advice != "" {
				text += "; " + f.Advice
			}
			fmt.Fprintf(&b, "  %s\n", printable.Text(text))
		}
	}
	return b.String()
}

type policyCmd struct {
	tableFlags
	ReadOnly bool    `name:"read-only"`
	Offline  bool    `name:"offline"`
	Role     *string `placeholder:"NAME" empty:"name the role, or leave the flag out"`
}

// Run prints the least policy. Only DynamoDB is asked for something, and need not answer.
func (f *policyCmd) Run(c *console) error {
	ctx, at, stop, err := f.begin(c, true)
	if err != nil {
		return err
	}
	defer stop()
	if f.Role != nil && at.Scheme() == "dynamodb" {
		return usage("--role is for a table of PostgreSQL: leave it out")
	}
	o := driver.PolicyOptions{Role: cmp.Or(valueOf(f.Role), at.User()), ReadOnly: f.ReadOnly}
	store, err := f.store(ctx, at, &o)
	var text, note string
	if err == nil {
		defer store.Close() //nolint:errcheck // nothing was kept in it
		text, note, err = store.(driver.Granter).Policy(ctx, o)
	}
	if err != nil {
		return tableFailed(ctx, at, err)
	}
	if note != "" {
		c.say("%s", note)
	}
	c.put(text)
	return nil
}

// store returns a store that sends its engine no request, or else a store on DynamoDB.
func (f *policyCmd) store(ctx context.Context, at storeurl.Location, o *driver.PolicyOptions) (driver.Store, error) {
	o.Unasked = "no request was sent"
	if at.Scheme() == "dynamodb" && !f.Offline {
		store, err := at.Connect(ctx)
		if err == nil {
			o.Unasked = ""
			return store, nil
		}
		o.Unasked = flags.OneLine(err)
	}
	return at.Unasked(ctx)
}

// begin returns the location of the store, and a context that a signal ends. Tableless
// engines are refused, unless they may be granted something.
func (f *tableFlags) begin(c *console, grants bool) (
	ctx context.Context, at storeurl.Location, stop func(), err error,
) {
	if f.Store == nil && os.Getenv("TENURE_STORE") == "" {
		return nil, at, nil, usage("no table is named: %s, or set TENURE_STORE", writeTable)
	}
	if at, err = f.location(c); err == nil {
		err = noTable(at, grants)
	}
	if err != nil {
		return nil, at, nil, err
	}
	ctx, end := catchSignals().cancel(context.Background())
	return ctx, at, func() { end() }, nil
}

const writeTable = "write --store 'dynamodb://TABLE?region=REGION', --store 'postgres://USER@HOST/DATABASE', " +
	"--store 'mysql://USER@HOST/DATABASE' or --store redis://HOST"

// noTable returns an error for a store whose engine has no tables, and has nothing to grant if
// that would do.
func noTable(at storeurl.Location, grants bool) error {
	what, needs := "Kubernetes", "the Role"
	switch at.Scheme() {
	case "dynamodb", "postgres", "mysql", "mariadb", "redis", "rediss":
		return nil
	case "kubernetes":
	case "s3":
		what, needs = "a bucket", "the rights"
	default:
		return usage("%s is not a table of DynamoDB, PostgreSQL or MySQL, nor in Redis: %s", at.Shown(), writeTable)
	}
	if grants {
		return nil
	}
	return usage("%s needs no table: tenure table policy prints %s that the store needs, "+
		"and tenure doctor examines it", what, needs)
}

// onTable calls do with the store, whose table need not be there.
func onTable(ctx context.Context, at storeurl.Location, do func(driver.Provisioner) error) error {
	store, err := at.Connect(ctx)
	if err != nil {
		return tableFailed(ctx, at, err)
	}
	defer store.Close() //nolint:errcheck // nothing was kept in it
	return tableFailed(ctx, at, do(store.(driver.Provisioner)))
}

// tableFailed returns what to end with.
func tableFailed(ctx context.Context, at storeurl.Location, err error) error {
	sig := signaled{}
	switch {
	case err == nil:
		return nil
	case errors.As(context.Cause(ctx), &sig):
		return sig
	case errors.Is(err, driver.ErrUnfit):
		return failed(statusBad, err)
	case errors.Is(err, errors.ErrUnsupported):
		return usage("%w", err)
	}
	return storeFailed(at.Brief(err))
}

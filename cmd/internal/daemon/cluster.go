// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/cluster"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// clusterCmd is tenured cluster: a stock etcd, set up as leases need it.
type clusterCmd struct {
	Init   clusterInitCmd   `cmd:""`
	Add    clusterAddCmd    `cmd:""`
	Remove clusterRemoveCmd `cmd:""`
	Check  clusterCheckCmd  `cmd:""`
	Certs  clusterCertsCmd  `cmd:""`
}

// clusterDir is where the files of a cluster are.
type clusterDir struct {
	Dir string `default:"cluster"`
}

func (f *clusterDir) open() (*cluster.Folder, error) {
	folder, err := cluster.Open(f.Dir)
	if err != nil {
		return nil, flags.Usage("%w", err)
	}
	return folder, nil
}

// clusterInitCmd is tenured cluster init.
type clusterInitCmd struct {
	clusterDir
	Nodes       []string `arg:"" optional:"" name:"node" sep:"none"`
	Etcd        *string
	ConfigDir   *string
	DataDir     *string
	ClientPort  *int
	PeerPort    *int
	MetricsPort *int
	Quota       *string
	Retention   *time.Duration
	Prefix      *string
	WAN         bool `name:"wan"`
	Roles       bool
}

// given sets what was given.
func given[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Run writes the folder of a new cluster, and says what to do with it.
func (f *clusterInitCmd) Run(c *console) error {
	s := cluster.Defaults()
	given(&s.Etcd, f.Etcd)
	given(&s.ConfigDir, f.ConfigDir)
	given(&s.DataDir, f.DataDir)
	given(&s.ClientPort, f.ClientPort)
	given(&s.PeerPort, f.PeerPort)
	given(&s.MetricsPort, f.MetricsPort)
	given(&s.Prefix, f.Prefix)
	s.WAN = f.WAN
	if f.Retention != nil {
		s.Retention = cluster.Seconds(*f.Retention / time.Second)
	}
	if f.Quota != nil {
		quota, err := cluster.ParseQuota(*f.Quota)
		if err != nil {
			return flags.Usage("%w", err)
		}
		s.Quota = quota
	}
	var nodes []cluster.Node
	for _, word := range f.Nodes {
		n, err := cluster.ParseNode(word)
		if err != nil {
			return flags.Usage("%w", err)
		}
		nodes = append(nodes, n)
	}
	warning, err := cluster.CheckNodes(nodes)
	if err != nil {
		return flags.Usage("%w", err)
	}
	folder, err := cluster.Init(f.Dir, s, nodes, time.Now())
	if err != nil {
		return flags.Usage("%w", err)
	}
	if warning != "" {
		c.warn("%s", warning)
	}
	c.warn("wrote %s: take the folder of each node to its node, and start etcd there as its etcd.service says; take %[1]s/client to the programs, and %[1]s/ca off this machine", f.Dir)
	lines := []string{"TENURE_STORE='" + folder.URL() + "'"}
	if f.Roles {
		lines = append(lines, folder.Roles()...)
	}
	return printLines(c.stdout, lines)
}

// clusterAddCmd is tenured cluster add.
type clusterAddCmd struct {
	clusterDir
	Node    string        `arg:"" optional:""`
	Timeout time.Duration `default:"30m"`
}

// Run adds a node.
func (f *clusterAddCmd) Run(c *console) error {
	if f.Node == "" {
		return flags.Usage("no node is named: write NAME=ADDRESS, such as d=10.0.0.4")
	}
	n, err := cluster.ParseNode(f.Node)
	if err != nil {
		return flags.Usage("%w", err)
	}
	if f.Timeout <= 0 {
		return flags.Usage("--timeout %v must be positive", f.Timeout)
	}
	folder, err := f.open()
	if err != nil {
		return err
	}
	ctx, stop := interrupted(f.Timeout)
	defer stop()
	if err := folder.Add(ctx, n, time.Now(), c.warn); err != nil {
		return flags.Failed(flags.StatusStore, err)
	}
	return printLines(c.stdout, []string{"TENURE_STORE='" + folder.URL() + "'"})
}

// clusterRemoveCmd is tenured cluster remove.
type clusterRemoveCmd struct {
	clusterDir
	Node string `arg:"" optional:""`
	Yes  bool
}

// removePatience bounds all that a removal waits for.
const removePatience = 2 * time.Minute

// Run removes a node.
func (f *clusterRemoveCmd) Run(c *console) error {
	if f.Node == "" {
		return flags.Usage("no node is named: write the name of one, such as c")
	}
	folder, err := f.open()
	if err != nil {
		return err
	}
	ctx, stop := interrupted(removePatience)
	defer stop()
	if err := folder.Remove(ctx, f.Node, f.Yes, c.warn); err != nil {
		return flags.Failed(flags.StatusStore, err)
	}
	return printLines(c.stdout, []string{"TENURE_STORE='" + folder.URL() + "'"})
}

// clusterCheckCmd is tenured cluster check.
type clusterCheckCmd struct {
	clusterDir
	flags.Timing
	Restore bool
	JSON    bool `name:"json"`
	Quiet   bool `short:"q"`
}

// checkPatience bounds an examination.
const checkPatience = 3 * time.Minute

// statusBad is the exit status of an examination that found something bad.
const statusBad = 1

// Run examines the cluster, or says how to restore it.
func (f *clusterCheckCmd) Run(c *console) error {
	options, err := f.Options(new(string)) // whatever store the environment names
	if err != nil {
		return err
	}
	if options, err = flags.WithDefaults(options); err != nil {
		return err
	}
	folder, err := f.open()
	if err != nil {
		return err
	}
	if f.Restore {
		if f.JSON || f.Given() {
			return flags.Usage("--restore prints steps, and looks at nothing: leave out --json and the durations of a lease")
		}
		return printLines(c.stdout, folder.Restore())
	}
	ctx, stop := interrupted(checkPatience)
	defer stop()
	count := map[doctor.Level]int{}
	var failed error
	bad, err := folder.Check(ctx, options, time.Now(), func(found doctor.Finding) {
		count[found.Level]++
		if f.Quiet && found.Level == doctor.OK {
			return
		}
		line := printable.Text(found.String())
		if f.JSON {
			text, err := json.Marshal(found)
			failed = errors.Join(failed, err)
			line = string(text)
		}
		failed = errors.Join(failed, printLines(c.stdout, []string{line}))
	})
	if !f.JSON && (!f.Quiet || count[doctor.Bad]+count[doctor.Warn] > 0) {
		failed = errors.Join(failed, printLines(c.stdout, []string{fmt.Sprintf("%d bad, %d to be warned of", count[doctor.Bad], count[doctor.Warn])}))
	}
	switch {
	case failed != nil:
		return fmt.Errorf("standard output: %w", failed)
	case errors.Is(err, doctor.ErrNoStore):
		return flags.Failed(flags.StatusStore, nil)
	case err != nil:
		return err
	case bad:
		return flags.Failed(statusBad, nil)
	}
	return nil
}

// clusterCertsCmd is tenured cluster certs.
type clusterCertsCmd struct {
	clusterDir
	Renew bool
	Node  string `arg:"" optional:""`
}

// Run lists the certificates, or makes some again.
func (f *clusterCertsCmd) Run(c *console) error {
	folder, err := f.open()
	if err != nil {
		return err
	}
	if f.Renew {
		renewed, err := folder.Renew(f.Node, time.Now())
		for _, dir := range renewed {
			c.warn("renewed what is in %s: take its files to where they are used; etcd reads them at the next connection", dir)
		}
		return err
	}
	if f.Node != "" {
		return flags.Usage("%.40q is one word too many: write --renew %[1]s to make its certificates again", f.Node)
	}
	all, err := folder.Certificates()
	if err != nil {
		return err
	}
	var lines []string
	for _, cert := range all {
		lines = append(lines, fmt.Sprintf("%s  %s", cert.End.UTC().Format(time.DateOnly), printable.Text(cert.File)))
	}
	return printLines(c.stdout, lines)
}

// interrupted returns a context that ends with a signal, or when it has taken so long.
func interrupted(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, func() { cancel(); stop() }
}

func printLines(to io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command faults throws the same faults at Tenure and at other lock libraries,
// all in one run: cirello.io/dynamolock and com.amazonaws:dynamodb-lock-client
// on one DynamoDB engine, etcd's concurrency package on an embedded etcd,
// client-go's leaderelection on leases of an API server of its own, and the election
// among the clients of River on PostgreSQL. Then it throws them at Tenure on PostgreSQL, on
// that etcd, on ZooKeeper, on an API server of Kubernetes, and in a bucket.
//
//	scripts/engines run dynoxide postgres zookeeper kubernetes versitygw -- go run ./evidence/faults -write
//
// The libraries run as processes, each behind a gate that makes the faults. What
// was seen goes to results.json, and from there to docs/evidence/faults.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

func main() {
	proc.Play(roles)
	proc.Main("faults", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		list      = flags.String("rows", "", "which faults, of "+names(rows, row.name)+", and with -service others; all if empty")
		libraries = flags.String("libraries", "", "at which libraries, of "+names(subjects, subject.id)+", or with -service "+names(clients, subject.id)+"; all if empty")
		service   = flags.Bool("service", false, "throw them at the clients of the lock service, and write evidence/faults/service.json and docs/evidence/faults.md")
		postgres  = flags.String("postgres", os.Getenv(postgresEnv), "the `URL` of a PostgreSQL whose user may make databases, for River and Tenure")
		zookeeper = flags.String("zookeeper", os.Getenv(zooKeeperEnv), "the `address` of a ZooKeeper, HOST:PORT, for Tenure")
		kube      = flags.String("kubernetes", os.Getenv(kubernetesEnv), "the `kubeconfig` of an API server whose user may make namespaces, for Tenure")
		gateway   = flags.String("bucket", os.Getenv(gatewayEnv), "the `URL` of a server of S3's protocol, for Tenure")
		engine    = flags.String("engine", os.Getenv(dynamo.EngineEnv), "the `URL` of a DynamoDB engine")
		write     = flags.Bool("write", false, "write evidence/faults/results.json and docs/evidence/faults.md")
		page      = flags.Bool("page", false, "write docs/evidence/faults.md of the results that there are, and do nothing else")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *page {
		return rewrite(ctx)
	}
	if *engine == "" {
		return dynamo.NoEngine("faults")
	}
	all, faults := subjects, rows
	if *service {
		all, faults = clients, clientRows()
	}
	chosen, err := pick(all, *libraries, "library", subject.id)
	if err != nil {
		return err
	}
	thrown, err := pick(faults, *list, "row", row.name)
	if err != nil {
		return err
	}
	r := &rig{engine: *engine, db: dynamo.Connect(*engine), zookeeper: *zookeeper, gateway: *gateway, versions: map[string]string{}}
	r.say = func(format string, args ...any) { fmt.Fprintf(stderr, "faults: "+format+"\n", args...) }
	if r.dir, err = os.MkdirTemp("", "tenure-faults-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.dir) }() // it is the system's to clean, then
	if using(chosen, zooKeeper) && *zookeeper == "" {
		return fmt.Errorf("faults: no ZooKeeper for Tenure: start it with scripts/engines run zookeeper, or name one in %s", zooKeeperEnv)
	}
	if using(chosen, bucket) && *gateway == "" {
		return fmt.Errorf("faults: no server of S3's protocol for Tenure: start one with scripts/engines run versitygw, or name it in %s", gatewayEnv)
	}
	if slices.ContainsFunc(chosen, subject.isOnKubernetes) {
		if *kube == "" {
			return fmt.Errorf("faults: no Kubernetes for Tenure: start it with scripts/engines run kubernetes, or name a kubeconfig in %s", kubernetesEnv)
		}
		if r.cluster, err = newCluster(*kube); err != nil {
			return err
		}
		defer r.cluster.close()
	}
	if using(chosen, postgreSQL) {
		if *postgres == "" {
			return fmt.Errorf("faults: no PostgreSQL for River and Tenure: start it with scripts/engines run postgres, or name one in %s", postgresEnv)
		}
		if r.database, err = newDatabase(ctx, *postgres); err != nil {
			return err
		}
		defer func() { _ = r.database.close(context.WithoutCancel(ctx)) }() // the server is ended soon
	}
	if err := r.prepare(ctx, thrown, chosen); err != nil {
		return err
	}
	defer r.etcd.close()

	began := time.Now()
	found := &report{Date: now(), Machine: machine.Here(), Libraries: r.versions, Cells: map[string]map[string]cell{}}
	if found.Engine, err = machine.Engine(ctx, *engine); err != nil {
		return err
	}
	if found.Engines, err = r.engines(ctx, chosen); err != nil {
		return err
	}
	for _, row := range thrown {
		at := time.Now()
		if found.Cells[row.id], err = r.row(ctx, row, chosen); err != nil {
			return err
		}
		r.say("%s: %.1f s", row.id, time.Since(at).Seconds())
		for _, s := range chosen {
			c := found.Cells[row.id][s.name]
			fmt.Fprintf(stdout, "%s\t%s\t%s\t%s\n", row.id, s.name, c.Verdict, c.Seen)
		}
	}
	found.Machine.LoadAfter, found.Took = machine.Load(), time.Since(began).Seconds()
	if !*write {
		return nil
	}
	if len(chosen) < len(all) {
		return fmt.Errorf("nothing is written: not all libraries were looked at")
	}
	if *service {
		return found.publishService(ctx, stdout)
	}
	if err := found.complete(); err != nil {
		return fmt.Errorf("nothing is written: %w", err)
	}
	return found.write(ctx)
}

// using says whether one of the subjects is on an engine.
func using(chosen []subject, on engine) bool {
	return slices.ContainsFunc(chosen, func(s subject) bool { return s.on == on })
}

// engines are the versions of the engines that are in use beside DynamoDB's, and what is
// not as it is by default.
func (r *rig) engines(ctx context.Context, chosen []subject) (map[engine]string, error) {
	all := map[engine]string{}
	if using(chosen, postgreSQL) {
		version, err := r.database.version(ctx)
		if err != nil {
			return nil, err
		}
		all[postgreSQL] = version + ", on loopback"
	}
	if using(chosen, etcdEngine) {
		all[etcdEngine] = etcdVersion + ", one member, in a process with the gates, on loopback"
	}
	if using(chosen, zooKeeper) {
		version, err := zooKeeperVersion(ctx, r.zookeeper)
		if err != nil {
			return nil, err
		}
		all[zooKeeper] = version + ", one server, on loopback"
	}
	if using(chosen, bucket) {
		gateway, err := launcher.Find("versitygw")
		if err != nil {
			return nil, err
		}
		all[bucket] = gateway.Name + " " + gateway.Version + ", one gateway to files, on loopback"
	}
	if slices.ContainsFunc(chosen, subject.isOnKubernetes) {
		version, err := r.cluster.version()
		if err != nil {
			return nil, err
		}
		all[apiServer] = version + ", one kube-apiserver with an etcd of its own, on loopback"
	}
	return all, nil
}

// pick returns the elements of a list of names, all of them if there is none.
func pick[T any](all []T, list, what string, name func(T) string) (chosen []T, err error) {
	if list == "" {
		return all, nil
	}
	for wanted := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(t T) bool { return name(t) == wanted })
		if i < 0 {
			return nil, fmt.Errorf("there is no %s %q", what, wanted)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// prepare builds and starts what the rows need. It takes minutes when nothing is
// built yet.
func (r *rig) prepare(ctx context.Context, thrown []row, chosen []subject) (err error) {
	if r.program, err = os.Executable(); err != nil {
		return err
	}
	if slices.ContainsFunc(chosen, func(s subject) bool { return s.name == javaName }) {
		if r.java, err = peers.BuildJava(ctx); err != nil {
			return err
		}
	}
	if err := r.prepareService(ctx, chosen); err != nil {
		return err
	}
	for _, row := range thrown {
		switch row.id {
		case childRow:
			err = r.buildCommands(ctx)
		case suspendRow:
			err = r.prepareSleep(ctx, chosen)
		}
		if err != nil {
			return err
		}
	}
	r.etcd, err = startEtcd(ctx)
	return err
}

// usualGroups are the libraries, then Tenure on its other stores, then on Kubernetes, whose
// API server is the largest of the engines: all at once would be too much for a machine with
// two cores. The clients of the service are looked at with one replica, and then with more.
func usualGroups(chosen []subject) [][]string {
	groups := make([][]string, 5)
	for _, s := range chosen {
		i := 0
		switch {
		case s.isServed() && s.replicas() > 1:
			i = 4
		case s.isServed():
			i = 3
		case s.isOnKubernetes():
			i = 2
		case s.elsewhere():
			i = 1
		}
		groups[i] = append(groups[i], s.name)
	}
	return groups
}

// row looks at one row, at subjects of a group at the same time: they wait for
// most of it.
func (r *rig) row(ctx context.Context, row row, chosen []subject) (map[string]cell, error) {
	groups := row.groups
	if groups == nil {
		groups = usualGroups(chosen)
	}
	var mu sync.Mutex
	cells := map[string]cell{}
	for _, group := range groups {
		subjects := slices.DeleteFunc(slices.Clone(chosen), func(s subject) bool { return !slices.Contains(group, s.name) })
		err := wait.AtOnce(ctx, len(subjects), max(1, len(subjects)), func(ctx context.Context, i int) error {
			s := subjects[i]
			c, err := r.cell(ctx, row, s)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", row.id, s.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			cells[s.name] = c
			return nil
		})
		if err != nil {
			return cells, err
		}
	}
	return cells, nil
}

func (r *rig) cell(ctx context.Context, row row, s subject) (cell, error) {
	if why := s.lacks[row.id]; why != "" {
		return cell{Verdict: none, Seen: why}, nil
	}
	lease := row.lease
	if lease == 0 {
		lease = s.lease
	}
	c, err := r.scene(ctx, s, lease)
	if err != nil {
		return cell{}, err
	}
	defer c.close(ctx)
	return row.try(ctx, c)
}

// names lists the names of all.
func names[T any](all []T, name func(T) string) string {
	var names []string
	for _, t := range all {
		names = append(names, name(t))
	}
	return strings.Join(names, ",")
}

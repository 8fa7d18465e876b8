// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/sqlitestore"
)

// replicaRole is that of a replica of this program's own: package server on a file, as
// tenured has it, but that wrongEnv can have it break a rule.
const (
	replicaRole = "replica"
	wrongEnv    = "TENURE_SERVICE_WRONG"
)

// serveReplica serves until it is killed. Its flags are some of tenured's.
func serveReplica(io.Reader, io.Writer) error {
	flags := flag.NewFlagSet(replicaRole, flag.ContinueOnError)
	url := flags.String("store", "", "sqlite:FILE")
	listen := flags.String("listen", "", "HOST:PORT")
	tokens := flags.String("tokens", "", "FILE of principals")
	lease := flags.Duration("lease", 0, "lease")
	_ = flags.Duration("drain", 0, "not needed: it ends when all that is under way has")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	file, isFile := strings.CutPrefix(*url, "sqlite:")
	if !isFile {
		return fmt.Errorf("store %q: want sqlite:FILE", *url)
	}
	store, err := sqlitestore.Open(file, nil)
	if err != nil {
		return err
	}
	return serve(store, *listen, *tokens, *lease)
}

func serve(store driver.Store, listen, tokens string, lease time.Duration) error {
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: lease})
	if err != nil {
		return err
	}
	principals, err := server.OpenPrincipals(tokens, nil)
	if err != nil {
		return err
	}
	right, err := server.New(client, server.Options{Principals: principals})
	if err != nil {
		return err
	}
	handler, err := misled(right, client, store, os.Getenv(wrongEnv))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- h.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-told.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	// As tenured ends: those who wait are told to ask elsewhere, then what is under way ends.
	return errors.Join(right.Shutdown(ctx), h.Shutdown(ctx), client.Close(ctx))
}

// endBound bounds the end of a replica.
const endBound = 10 * time.Second

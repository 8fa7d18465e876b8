// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// The clients of the lock service are subjects as well, in a table of their own: each with
// one replica of tenured, and with three.

// served is how a subject is a client of the service.
type served struct {
	client   peers.Kind
	replicas int
}

const severalReplicas = 3

var servedBySubject = map[string]served{
	"python-1": {service.Python, 1}, "typescript-1": {service.TypeScript, 1}, "java-1": {service.Java, 1},
	"python-3": {service.Python, severalReplicas}, "typescript-3": {service.TypeScript, severalReplicas}, "java-3": {service.Java, severalReplicas},
}

// clients are these subjects.
var clients = []subject{
	{"python-1", "Python, 1 replica", dynamoDB, usualLease, serviceSettings, 5, 3, nil},
	{"typescript-1", "TypeScript, 1 replica", dynamoDB, usualLease, serviceSettings, 5, 3, nil},
	{"java-1", "Java, 1 replica", dynamoDB, usualLease, serviceSettings, 5, 2, nil},
	{"python-3", "Python, 3 replicas", dynamoDB, usualLease, serviceSettings, 5, 3, nil},
	{"typescript-3", "TypeScript, 3 replicas", dynamoDB, usualLease, serviceSettings, 5, 3, nil},
	{"java-3", "Java, 3 replicas", dynamoDB, usualLease, serviceSettings, 5, 2, nil},
}

func serviceSettings(time.Duration) settings { return settings{said: tenureSettings} }

func (s subject) isServed() bool     { return s.replicas() > 0 }
func (s subject) client() peers.Kind { return servedBySubject[s.name].client }
func (s subject) replicas() int      { return servedBySubject[s.name].replicas }

// prepareService builds tenured and the clients that are looked at.
func (r *rig) prepareService(ctx context.Context, chosen []subject) (err error) {
	if !slices.ContainsFunc(chosen, subject.isServed) {
		return nil
	}
	if r.tenured, err = service.BuildTenured(ctx, r.dir); err != nil {
		return err
	}
	r.clients = map[peers.Kind]*peers.Program{}
	for _, s := range chosen {
		if s.isServed() && r.clients[s.client()] == nil {
			if r.clients[s.client()], err = service.Build(ctx, s.client()); err != nil {
				return err
			}
		}
	}
	return nil
}

// servedBy is the service of a scene: its replicas, each with a gate before the store.
type servedBy struct {
	*service.Replicas
	stores []*gate.HTTP
}

func (s *scene) startService(ctx context.Context) (err error) {
	by := &servedBy{}
	var urls []string
	for range s.replicas() {
		g, err := gate.NewDynamoDB(s.engine)
		if err != nil {
			by.close()
			return err
		}
		by.stores = append(by.stores, g)
		urls = append(urls, s.storeURL(g.Address()))
	}
	by.Replicas, err = service.Start(ctx, service.Config{Program: s.tenured, Dir: s.dir, Stores: urls, Lease: s.lease, Drain: s.lease / 4})
	if err != nil {
		by.close()
		return err
	}
	s.service = by
	return nil
}

func (by *servedBy) close() {
	if by.Replicas != nil {
		by.Replicas.Close()
	}
	for _, g := range by.stores {
		g.Close()
	}
}

// front returns what stands between a client and the replicas.
func (by *servedBy) front() (gate.Gate, error) {
	front, err := service.NewFront(by.URLs(), gate.Fair, rand.Uint64())
	if err != nil {
		return nil, err // not the nil *gate.HTTP in an interface
	}
	return front, nil
}

// proxy is the one that stands before a client of the service.
func (m *member) proxy() *gate.HTTP { return m.gate.(*gate.HTTP) }

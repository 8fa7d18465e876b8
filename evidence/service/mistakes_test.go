// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// played is a scene, with a mistake or without one.
type played struct {
	scene
	name   string
	env    []string // of the replicas
	client *peers.Program
	seen   string // empty where there is no mistake
}

// breaking is a client that breaks a rule.
func breaking(program *peers.Program, rule string) *peers.Program {
	wrong := *program
	wrong.Command.Env = append(slices.Clone(program.Command.Env), service.WrongEnv+"="+rule)
	return &wrong
}

// TestScenes: no scene shows a mistake where none is made, with a client of each language.
func TestScenes(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			for _, kind := range service.Kinds {
				t.Run(string(kind), func(t *testing.T) {
					t.Parallel()
					p := played{scene: s, name: s.name, client: need(t, kind)}
					p.play(t.Context(), t, setting{Program: program, Role: replicaRole}, need(t, service.Python))
				})
			}
		})
	}
}

// TestMistakes: each scene shows the mistake that it is for.
func TestMistakes(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	python := need(t, service.Python)
	var all []played
	for _, v := range variants {
		if v.mutant != "" {
			continue // of the machines: the mutant has the scene find it
		}
		i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == v.scene })
		p := played{scene: scenes[i], name: v.name, client: python, seen: v.seen}
		if v.server != "" {
			p.env = []string{wrongEnv + "=" + v.server}
		} else {
			p.client = breaking(python, v.client)
		}
		all = append(all, p)
	}
	const together = 6 // they wait for most of their time
	err = wait.AtOnce(t.Context(), len(all), together, func(ctx context.Context, i int) error {
		all[i].play(ctx, t, setting{Program: program, Role: replicaRole, Env: all[i].env}, python)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func (p played) play(ctx context.Context, t *testing.T, on setting, two *peers.Program) {
	wrong, err := p.run(ctx, on, p.client, two)
	shown := slices.IndexFunc(wrong, func(text string) bool { return strings.Contains(text, p.seen) })
	switch {
	case err != nil:
		t.Errorf("%s: %v", p.name, err)
	case p.seen == "" && len(wrong) > 0:
		t.Errorf("%s:\n%s", p.name, strings.Join(wrong, "\n"))
	case p.seen != "" && shown < 0:
		t.Errorf("%s: the scene %q does not show it: want %q in %q", p.name, p.scene.name, p.seen, wrong)
	case p.seen != "":
		t.Logf("%s: %s", p.name, wrong[shown])
	}
}

// TestRoundBites: a round of the nemesis shows two holders as well, without a scene that is
// made for it.
func TestRoundBites(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	python := need(t, service.Python)
	p := plan{
		setting:  setting{Program: program, Role: replicaRole, Env: []string{wrongEnv + "=" + fromMemory}, Replicas: 3, Lease: 2 * time.Second},
		Programs: []*peers.Program{python, python, python, python}, Length: 15 * time.Second,
		// Nothing that ends holds early: they have to live by their heartbeats.
		Only: []string{"replica stopped"},
	}
	overlaps := func(text string) bool {
		return strings.Contains(text, " ended: ") || strings.Contains(text, " acted under ")
	}
	for p.Seed = 1; p.Seed <= 3; p.Seed++ {
		if v := p.mustPlay(t); slices.ContainsFunc(v.Wrong, overlaps) {
			return
		}
	}
	t.Error("replicas answer heartbeats from memory, and no round shows two holders")
}

// run plays a scene with a client, on replicas of a setting.
func (s scene) run(ctx context.Context, on setting, one, two *peers.Program) (wrong []string, err error) {
	on.Replicas, on.Lease = s.replicas, s.lease
	x, err := on.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := x.close(); err == nil {
			err = closed
		}
	}()
	wrong, err = s.play(ctx, &act{x, one, two})
	if err != nil {
		for i := range x.Len() {
			err = fmt.Errorf("%w\nreplica %d: %s", err, i+1, x.Said(i))
		}
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return wrong, err
}

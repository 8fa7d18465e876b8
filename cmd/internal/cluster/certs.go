// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Certificate is one of the folder.
type Certificate struct {
	// File is its path.
	File string
	// Serial is its number.
	Serial string
	// End is until when it is good.
	End time.Time
}

// Certificates returns those of the folder, the one that ends first before the others.
func (f *Folder) Certificates() ([]Certificate, error) {
	bases := []string{filepath.Join(caDir, clientCA), filepath.Join(caDir, peerCA)}
	for dir, user := range users {
		bases = append(bases, filepath.Join(dir, user))
	}
	for _, n := range f.plan.Nodes {
		bases = append(bases, filepath.Join(n.Name, "server"), filepath.Join(n.Name, "peer"))
	}
	var all []Certificate
	for _, base := range bases {
		path := filepath.Join(f.dir, base+".crt")
		cert, err := readCertificate(path)
		if err != nil {
			return nil, err
		}
		all = append(all, Certificate{path, cert.SerialNumber.String(), cert.NotAfter})
	}
	slices.SortFunc(all, func(a, b Certificate) int { return cmp.Or(a.End.Compare(b.End), cmp.Compare(a.File, b.File)) })
	return all, nil
}

// Renew makes certificates again, with new keys: those of a node, of the folder client or
// admin, or all if who is "". It returns the folders in which they are. What is there stays
// good until it ends.
func (f *Folder) Renew(who string, now time.Time) (renewed []string, err error) {
	a, err := readAuthorities(f.dir)
	if err != nil {
		return nil, err
	}
	for _, ca := range []*authority{a.clients, a.peers} {
		if !now.Before(ca.cert.NotAfter) {
			return nil, fmt.Errorf("the authority %q has ended on %s: what it signs is refused; write a new folder with tenured cluster init", ca.cert.Subject.CommonName, day(ca.cert.NotAfter))
		}
	}
	var folders []string
	for _, n := range f.plan.Nodes {
		folders = append(folders, n.Name)
	}
	folders = append(folders, clientDir, adminDir)
	if who != "" {
		if !slices.Contains(folders, who) {
			return nil, fmt.Errorf("there is no node %.60q: write one of %s, or nothing for all", who, strings.Join(folders, ", "))
		}
		folders = []string{who}
	}
	for _, dir := range folders {
		made := map[string]pair{}
		if n, ok := f.node(dir); ok {
			server, sErr := a.server(n, now)
			peer, pErr := a.peer(n, now)
			made["server"], made["peer"], err = server, peer, errors.Join(sErr, pErr)
		} else {
			made[users[dir]], err = a.user(users[dir], now)
		}
		if err != nil {
			return renewed, err
		}
		for name, p := range made {
			if err := f.replacePair(filepath.Join(dir, name), p); err != nil {
				return renewed, err
			}
		}
		renewed = append(renewed, filepath.Join(f.dir, dir))
	}
	return renewed, nil
}

// replacePair writes a certificate and its key. Between the two files they do not fit: whoever
// copies the folder does so when the command is over, and one that was interrupted is repeated.
func (f *Folder) replacePair(base string, p pair) error {
	files := map[string]file{}
	put(files, base, p)
	for _, end := range []string{".key", ".crt"} {
		if err := replace(filepath.Join(f.dir, base+end), files[base+end]); err != nil {
			return err
		}
	}
	return nil
}

// day returns a day as it is written for people.
func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

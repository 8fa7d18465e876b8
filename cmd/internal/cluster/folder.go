// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The rooms of a folder.
const (
	planFile    = "cluster.json"
	composeFile = "compose.yaml"
	caDir       = "ca"
	clientDir   = "client" // for programs
	adminDir    = "admin"  // for operators

	clientCA = "client-ca"
	peerCA   = "peer-ca"
	// The names of the certificates, and so of the users of etcd if it has any.
	programUser = "tenure"
	adminUser   = "root"

	configFile  = "etcd.yaml"
	restoreFile = "restore.yaml"
	unitFile    = "etcd.service"
)

// planVersion is the form of the plan's file.
const planVersion = 1

// plan is what the folder remembers.
type plan struct {
	Version  int      `json:"version"`
	Settings Settings `json:"settings"`
	Nodes    []Node   `json:"nodes"`
}

// Folder is where a cluster's files are.
type Folder struct {
	dir  string
	plan plan
}

// Init writes the folder of a new cluster, whole or not at all. It is an error if it is
// there, whatever is in it.
func Init(dir string, s Settings, nodes []Node, now time.Time) (*Folder, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if _, err := CheckNodes(nodes); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, fmt.Errorf("%s is there already, and may have the keys of a cluster: name another folder with --dir, or move it away", dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.Token = newToken()
	f := &Folder{dir, plan{planVersion, s, slices.Clone(nodes)}}
	files, err := f.all(now)
	if err != nil {
		return nil, err
	}
	if err := writeFolder(dir, files); err != nil {
		return nil, err
	}
	return f, nil
}

// newToken returns one that no other cluster has.
func newToken() string { return "tenure-" + rand.Text() }

// Open reads the folder of a cluster.
func Open(dir string) (*Folder, error) {
	path := filepath.Join(dir, planFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not there: name the folder that tenured cluster init has written with --dir", path)
	} else if err != nil {
		return nil, err
	}
	f := &Folder{dir: dir}
	if err := json.Unmarshal(text, &f.plan); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	if f.plan.Version != planVersion {
		return nil, fmt.Errorf("%s is of version %d, and this tenured reads %d: take the tenured that wrote it, or a newer one", path, f.plan.Version, planVersion)
	}
	err = f.plan.Settings.check()
	for i, n := range f.plan.Nodes {
		again, bad := ParseNode(n.Name + "=" + n.Address)
		again.Joining = n.Joining
		if bad == nil && again != n {
			bad = fmt.Errorf("node %s has the address %q", n.Name, n.Address)
		}
		err = errors.Join(err, bad, n.besides(f.plan.Nodes[:i]))
	}
	if err != nil {
		return nil, fmt.Errorf("%s was changed: %w", path, err)
	}
	return f, nil
}

// Dir returns where it is.
func (f *Folder) Dir() string { return f.dir }

// URL returns the store of the cluster, for programs: what --store and TENURE_STORE take.
func (f *Folder) URL() string { return f.url(clientDir, programUser) }

func (f *Folder) url(dir, user string) string {
	var hosts []string
	for _, n := range f.plan.Nodes {
		if !n.Joining { // a learner answers no strong read
			hosts = append(hosts, at(n.Address, f.plan.Settings.ClientPort))
		}
	}
	return f.urlAt(strings.Join(hosts, ","), dir, user)
}

func (f *Folder) urlAt(hosts, dir, user string) string {
	file := func(name string) string {
		path := filepath.ToSlash(filepath.Join(f.dir, dir, name))
		return strings.NewReplacer("%", "%25", "&", "%26", "#", "%23", "+", "%2B", " ", "%20", ";", "%3B").Replace(path)
	}
	return fmt.Sprintf("etcd://%s/%s?ca=%s&cert=%s&key=%s", hosts, f.plan.Settings.Prefix, file("ca.crt"), file(user+".crt"), file(user+".key"))
}

// node returns the node of a name.
func (f *Folder) node(name string) (Node, bool) {
	i := f.index(name)
	if i < 0 {
		return Node{}, false
	}
	return f.plan.Nodes[i], true
}

func (f *Folder) index(name string) int {
	return slices.IndexFunc(f.plan.Nodes, func(n Node) bool { return n.Name == name })
}

// save writes the plan.
func (f *Folder) save() error {
	return replace(filepath.Join(f.dir, planFile), f.planText())
}

func (f *Folder) planText() file {
	text, err := json.MarshalIndent(f.plan, "", "  ")
	if err != nil {
		return file{} // it is made of strings and numbers
	}
	return file{append(text, '\n'), 0o644}
}

// file is what stands in one.
type file struct {
	text []byte
	mode fs.FileMode
}

func public(text []byte) file { return file{text, 0o644} }
func secret(text []byte) file { return file{text, 0o600} }

// put adds a certificate and its key.
func put(files map[string]file, base string, p pair) {
	files[base+".crt"], files[base+".key"] = public(p.cert), secret(p.key)
}

// all makes the files of a new cluster.
func (f *Folder) all(now time.Time) (map[string]file, error) {
	files := map[string]file{}
	var a authorities
	var err error
	var clients, peers pair
	if a.clients, clients, err = newAuthority("clients of "+f.plan.Settings.Token, now); err != nil {
		return nil, err
	}
	if a.peers, peers, err = newAuthority("peers of "+f.plan.Settings.Token, now); err != nil {
		return nil, err
	}
	put(files, filepath.Join(caDir, clientCA), clients)
	put(files, filepath.Join(caDir, peerCA), peers)
	for dir, user := range users {
		p, err := a.user(user, now)
		if err != nil {
			return nil, err
		}
		put(files, filepath.Join(dir, user), p)
		files[filepath.Join(dir, "ca.crt")] = public(clients.cert)
	}
	for _, n := range f.plan.Nodes {
		of, err := f.nodeFiles(a, n, clients.cert, peers.cert, f.plan.Nodes, "new", now)
		if err != nil {
			return nil, err
		}
		for name, file := range of {
			files[filepath.Join(n.Name, name)] = file
		}
	}
	files[composeFile] = public([]byte(f.compose()))
	files[planFile] = f.planText()
	return files, nil
}

// users are those that have a folder.
var users = map[string]string{clientDir: programUser, adminDir: adminUser}

// nodeFiles makes the files of a node. Members are all of the cluster, it included.
func (f *Folder) nodeFiles(a authorities, n Node, clients, peers []byte, members []Node, state string, now time.Time) (map[string]file, error) {
	server, err := a.server(n, now)
	if err != nil {
		return nil, err
	}
	peer, err := a.peer(n, now)
	if err != nil {
		return nil, err
	}
	s := f.plan.Settings
	files := map[string]file{
		clientCA + ".crt": public(clients), peerCA + ".crt": public(peers),
		configFile:  public([]byte(s.config(n, members, state))),
		restoreFile: public([]byte(s.restoreConfig(n, members))),
		unitFile:    public([]byte(s.unit())),
	}
	put(files, "server", server)
	put(files, "peer", peer)
	return files, nil
}

// writeFolder writes a folder that is there as a whole, or not at all.
func writeFolder(dir string, files map[string]file) (err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-*") // with mode 0700
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp) // the error is told
		}
	}()
	for name, f := range files {
		path := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := write(path, f); err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}

// replace writes a file that is the old one or the new one at any moment.
func replace(path string, f file) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	err = tmp.Close()
	if err == nil {
		err = write(tmp.Name(), f)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // the error is told
	}
	return err
}

// write writes a file, and does not return before the disk has it.
func write(path string, f file) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, f.mode)
	if err != nil {
		return err
	}
	_, err = out.Write(f.text)
	return errors.Join(err, out.Chmod(f.mode), out.Sync(), out.Close())
}

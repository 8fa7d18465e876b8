// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurecertmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	tenurecertmagic "github.com/tenurelock/tenure/adapters/certmagic"
	"github.com/tenurelock/tenure/tenuretest"
)

// files is a storage in memory that all hosts share. It has no locks of its own.
type files struct {
	mu     sync.Mutex
	values map[string][]byte
}

var errDisk = errors.New("the disk does not answer")

// disk is how one host reaches the files: slowly, and with errors.
type disk struct {
	*files
	host  *host
	slow  time.Duration
	fails float64
}

// reach passes the time of a call, and says whether it gets there.
func (d *disk) reach(ctx context.Context) error {
	select {
	case <-time.After(d.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.host.ctx.Err() != nil { // killed
		return d.host.ctx.Err()
	}
	if mathrand.Float64() < d.fails && time.Since(d.host.harness.begun) < faulty {
		return errDisk
	}
	return nil
}

func (d *disk) Store(ctx context.Context, key string, value []byte) error {
	if err := d.reach(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values[key] = value
	return nil
}

func (d *disk) Load(ctx context.Context, key string) ([]byte, error) {
	if err := d.reach(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	value, ok := d.values[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return value, nil
}

func (d *disk) Delete(ctx context.Context, key string) error {
	if err := d.reach(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.values, key)
	return nil
}

func (d *disk) Exists(ctx context.Context, key string) bool {
	_, err := d.Load(ctx, key)
	return err == nil
}

func (d *disk) List(_ context.Context, path string, _ bool) (keys []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.values {
		if strings.HasPrefix(key, path+"/") {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (d *disk) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	_, err := d.Load(ctx, key)
	return certmagic.KeyInfo{Key: key, IsTerminal: true}, err
}

func (d *disk) Lock(context.Context, string) error {
	return errors.New("the lock of the inner storage")
}

func (d *disk) Unlock(context.Context, string) error {
	return errors.New("the lock of the inner storage")
}

// authority is a certificate authority, as one host sees it.
type authority struct {
	host *host
}

func (authority) IssuerKey() string { return "authority" }

// Issue takes its time, and ends early with its context or its process.
func (a authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	defer a.host.Work("order")()
	s := a.host.harness
	s.orders.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		<-time.After(200 * time.Millisecond) // to stop
		return nil, ctx.Err()
	}
	s.ended.Add(1)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: request.Subject, DNSNames: request.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

var signer = func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}()

// faulty is for how long the disk has faults.
const faulty = 25 * time.Second

// A harness is some hosts that want the same certificate.
type harness struct {
	t     *testing.T
	world *tenuretest.World
	files *files
	begun time.Time
	takes time.Duration // an order
	hosts []*host

	orders, ended atomic.Int64 // ended: with a certificate
}

// A host is a process with certmagic.
type host struct {
	harness *harness
	name    string
	*tenuretest.Client
	config *certmagic.Config
	ours   *tenurecertmagic.Storage
	ctx    context.Context // ends with the process
	end    context.CancelFunc
}

// storages make the storage of a host from its disk.
type storages func(h *host, inner certmagic.Storage) certmagic.Storage

func newHarness(t *testing.T, names string, takes time.Duration, storage storages) *harness {
	s := &harness{t: t, world: tenuretest.New(t), files: &files{values: make(map[string][]byte)}, begun: time.Now(), takes: takes}
	for _, name := range strings.Split(names, "") {
		h := &host{harness: s, name: name, Client: s.world.Client(name)}
		h.ctx, h.end = context.WithCancel(t.Context())
		cache := certmagic.NewCache(certmagic.CacheOptions{
			GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return h.config, nil },
			Logger:           zap.NewNop(),
		})
		t.Cleanup(cache.Stop)
		wrapped := storage(h, &disk{files: s.files, host: h, slow: 100 * time.Millisecond, fails: 0.2})
		h.config = certmagic.New(cache, certmagic.Config{Storage: wrapped, Logger: zap.NewNop()})
		h.config.Issuers = []certmagic.Issuer{authority{h}}
		if ours, ok := wrapped.(*tenurecertmagic.Storage); ok {
			h.ours = ours
			h.config.Issuers[0] = ours.Issuer(authority{h})
		}
		s.hosts = append(s.hosts, h)
	}
	return s
}

// obtain wants the certificate until it is there, as certmagic's maintenance does.
func (h *host) obtain() error {
	for {
		err := h.config.ObtainCertAsync(h.ctx, domain)
		if err == nil || h.ctx.Err() != nil {
			return h.ctx.Err()
		}
		select {
		case <-time.After(10 * time.Second):
		case <-h.ctx.Done():
		}
	}
}

const (
	domain = "example.com"
	lock   = "issue_cert_example.com"
)

// ordering waits until a host orders, and returns it.
func (s *harness) ordering() *host {
	var at []*tenuretest.Client
	s.world.Until("somebody orders", func() bool { at = s.world.Working("order"); return len(at) > 0 })
	return s.hosts[slices.IndexFunc(s.hosts, func(h *host) bool { return h.Client == at[0] })]
}

// expect compares how many orders there were, 0 for any number, and how many certificates.
func (s *harness) expect(orders int64) {
	s.t.Helper()
	if s.ended.Load() != 1 || orders != 0 && s.orders.Load() != orders {
		s.t.Errorf("%d certificates of %d orders", s.ended.Load(), s.orders.Load())
	}
}

func ours(h *host, inner certmagic.Storage) certmagic.Storage {
	return tenurecertmagic.Wrap(inner, h.Client.Client, nil)
}

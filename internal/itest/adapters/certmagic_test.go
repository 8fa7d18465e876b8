// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package adapters_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	tenurecertmagic "github.com/tenurelock/tenure/adapters/certmagic"
)

const domain = "example.com"

// runCertmagic wants a certificate, and ends when it is there.
func runCertmagic(ctx context.Context, p process) {
	inner := slow{&certmagic.FileStorage{Path: filepath.Join(p.dir, "certificates")}, p}
	storage := tenurecertmagic.Wrap(inner, p.client, nil)
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Logger: zap.NewNop()})
	config.Issuers = []certmagic.Issuer{storage.Issuer(authority{p})}
	for {
		// As its maintenance does, only sooner.
		if err := config.ObtainCertSync(ctx, domain); err == nil {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	p.tell("has it")
	if err := p.client.Close(ctx); err != nil {
		fail(err)
	}
}

// slow is a storage that is slow, and fails until an order was made.
type slow struct {
	certmagic.Storage
	p process
}

var errDisk = errors.New("the disk does not answer")

func (s slow) reach() error {
	<-time.After(20 * time.Millisecond)
	if _, err := os.Stat(s.p.log()); err != nil && mathrand.IntN(10) == 0 {
		return errDisk
	}
	return nil
}

func (s slow) Store(ctx context.Context, key string, value []byte) error {
	return errors.Join(s.reach(), s.Storage.Store(ctx, key, value))
}

func (s slow) Load(ctx context.Context, key string) ([]byte, error) {
	if err := s.reach(); err != nil {
		return nil, err
	}
	return s.Storage.Load(ctx, key)
}

func (s slow) Exists(ctx context.Context, key string) bool {
	return s.reach() == nil && s.Storage.Exists(ctx, key)
}

// authority signs what it gets, which takes longer than the lease.
type authority struct{ p process }

func (authority) IssuerKey() string { return "authority" }

func (a authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.p.tell("orders")
	select {
	case <-time.After(lease * 3 / 2):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: request.Subject, DNSNames: request.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a.p.tell("ordered")
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// TestCertmagic: three processes want a certificate, and the one that orders it is killed in
// the middle. One of the others orders it, both have it, and no lock is left.
func TestCertmagic(t *testing.T) {
	p := process{dir: t.TempDir()}
	processes := make(map[string]*exec.Cmd)
	for _, name := range []string{"a", "b", "c"} {
		processes[name] = p.start(t, "certmagic", name, "")
	}
	p.until(t, "an order", func(lines [][]string) bool { return len(lines) > 0 })
	killed := p.lines(t)[0][0]
	if err := processes[killed].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.until(t, "the others have it", func(lines [][]string) bool {
		n := 0
		for _, l := range lines {
			if l[1] == "has" {
				n++
			}
		}
		return n == 2
	})
	for name, c := range processes {
		if name == killed {
			continue
		}
		if err := c.Wait(); err != nil {
			t.Errorf("process %s: %v", name, err)
		}
	}
	orders, ordered := 0, 0
	for _, l := range p.lines(t) {
		switch l[1] {
		case "orders":
			orders++
		case "ordered":
			ordered++
		}
	}
	if orders != 2 || ordered != 1 {
		t.Errorf("%d orders, %d certificates: %v", orders, ordered, p.lines(t))
	}
}

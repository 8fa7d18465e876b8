// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// How long certificates are good for, from the moment at which they are made.
	authorityYears = 10
	leafYears      = 2
	// clockSkew is how far behind a machine's clock may be that sees a new one.
	clockSkew = time.Hour
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// pair is a certificate with its key, in PEM.
type pair struct{ cert, key []byte }

// newAuthority makes one.
func newAuthority(name string, now time.Time) (*authority, pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, pair{}, err
	}
	a := &authority{key: key, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-clockSkew), NotAfter: now.AddDate(authorityYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	p, err := a.sign(a.cert, key)
	return a, p, err
}

// issue makes a certificate, with a key of its own, that is good for two years or for as long
// as the authority is.
func (a *authority) issue(template *x509.Certificate, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.AddDate(leafYears, 0, 0)
	if a.cert.NotAfter.Before(template.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return a.sign(template, key)
}

// sign signs a certificate. The authority's own is parsed again, so that what it signs names
// its key.
func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return pair{}, err
	}
	if template == a.cert {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return pair{}, err
		}
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// readAuthority reads one from NAME.crt and NAME.key.
func readAuthority(base string) (*authority, error) {
	cert, err := readCertificate(base + ".crt")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(base + ".key")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s.key is not here, and signs certificates: bring it back for as long as this takes", base)
	} else if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s.key has no key in the form of PEM", base)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s.key: %w", base, err)
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s.key is not the key of %[1]s.crt", base)
	}
	return &authority{cert, signer}, nil
}

// readCertificate reads the first certificate of a file.
func readCertificate(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s has no certificate in the form of PEM", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}

// identity returns the template of a certificate for a node: its name, its address, and this
// machine to itself.
func identity(n Node, usage ...x509.ExtKeyUsage) *x509.Certificate {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: n.Name}, DNSNames: []string{n.Name, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ExtKeyUsage: usage,
	}
	if ip, ok := n.ip(); !ok && n.Address != n.Name {
		c.DNSNames = append(c.DNSNames, n.Address)
	} else if ok && !ip.IsLoopback() {
		c.IPAddresses = append(c.IPAddresses, ip.AsSlice())
	}
	return c
}

// authorities are the two of a cluster. That of clients signs what clients show and what
// servers show to them; that of peers what members show to each other. So no certificate of
// a client joins the cluster.
type authorities struct{ clients, peers *authority }

// readAuthorities reads those of a folder.
func readAuthorities(dir string) (a authorities, err error) {
	if a.clients, err = readAuthority(filepath.Join(dir, caDir, clientCA)); err != nil {
		return a, err
	}
	a.peers, err = readAuthority(filepath.Join(dir, caDir, peerCA))
	return a, err
}

// server, peer and user make the certificates of a node and of a client.
func (a authorities) server(n Node, now time.Time) (pair, error) {
	// No ClientAuth: with the gateway off a server is nobody's client.
	return a.clients.issue(identity(n, x509.ExtKeyUsageServerAuth), now)
}

func (a authorities) peer(n Node, now time.Time) (pair, error) {
	return a.peers.issue(identity(n, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth), now)
}

func (a authorities) user(name string, now time.Time) (pair, error) {
	return a.clients.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, now)
}

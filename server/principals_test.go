// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/access"
)

func TestPrincipalsOfAFile(t *testing.T) {
	text := fmt.Sprintf("\ufeff# NAME SECRET RIGHTS\r\n\r\nci\t%s  hold:jobs/ read:  # the builds\r\nci %s hold:jobs/ "+
		"read:\nweb sha256:%x hold,ask:web/\nspiffe://corp/batch cert hold:batch/\n",
		ci, "another-secret-of-ci", sha256.Sum256([]byte(web)))
	p, err := server.ParsePrincipals(text)
	if err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[string]string{
		ci: "ci", "another-secret-of-ci": "ci", web: "web", "cert": "", "": "", "wrong": "", "sha256:": "",
		fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(web))): "",
	} {
		if got, ok := p.ByToken(secret); got.Name() != want || ok != (want != "") {
			t.Errorf("%q is %q, want %q", secret, got.Name(), want)
		}
	}
	got, ok := p.BySum(sha256.Sum256([]byte(web)))
	if !ok || !got.May(access.Ask, "web/x") || got.May(access.Ask, "jobs/x") {
		t.Errorf("web is %+v", got)
	}
	for _, secret := range []string{"", "nobody", "cert", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(web)))} {
		if _, ok := p.BySum(sha256.Sum256([]byte(secret))); ok {
			t.Errorf("%q is a principal", secret)
		}
	}
}

// A secret that a person has made up is refused, with a sentence that does not show it.
func TestSecretsThatAreGuessed(t *testing.T) {
	for _, secret := range []string{
		"changemechangeme", "ChangeMe-Password1", "rootrootrootrootroot", "aaaaaaaaaaaaaaaa", "abababababababababab",
		"1234567812345678",
		"adminpassword1234", "SECRETSECRETSECRET", "12345678901234567890", "aaaaaaaabaaaaaaaacaaaa", "password-test-123",
	} {
		_, err := server.ParsePrincipals("ci " + secret + " hold:\n")
		if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "openssl rand") {
			t.Errorf("%s: %v", secret, err)
		}
	}
	for _, secret := range []string{
		"3fd5cda93e2bcdd4", "AWVFPIUV26QG3LZLGP5PDPEWWB", "correct horse battery"[:7] + "-battery-staple",
		"0f0f0f0f0f0f0f0a91c3", "secret-of-ci-0123456789",
	} {
		if _, err := server.ParsePrincipals("ci " + secret + " hold:\n"); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
	}
}

func TestPrincipalsByCertificate(t *testing.T) {
	p, err := server.ParsePrincipals("spiffe://corp/batch cert hold:\ndns.example.com cert hold:\nbob cert hold:\nci " +
		ci + " hold:\n")
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse("spiffe://corp/batch")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cert x509.Certificate
		want string
	}{
		{x509.Certificate{URIs: []*url.URL{uri}, DNSNames: []string{"dns.example.com"}}, "spiffe://corp/batch"},
		{x509.Certificate{DNSNames: []string{"other.example.com", "dns.example.com"}}, "dns.example.com"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "bob"}}, "bob"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "bob"}, DNSNames: []string{"other.example.com"}}, ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "ci"}}, ""}, // known by a token alone
		{x509.Certificate{}, ""},
	} {
		if got, _ := p.ByCertificate(&c.cert); got.Name() != c.want {
			t.Errorf("%v %v %v is %q, want %q", c.cert.URIs, c.cert.DNSNames, c.cert.Subject, got.Name(), c.want)
		}
	}
}

func TestFilesOfPrincipalsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no principals"},
		{"# nothing\n", "no principals"},
		{"\nci " + ci + "\n", "principals:2: too few words"},
		{"ci short hold:\n", "principals:1: the secret has 5 bytes: it must have 16 to 512"},
		{"ci " + strings.Repeat("x", 513) + " hold:\n", "the secret has 513 bytes"},
		{"ci sha256:xyz hold:\n", "64 hexadecimal digits"},
		{"ci " + ci + " hold\n", "word 3: no right"},
		{"ci " + ci + " write:a\n", "unknown right"},
		{"ci " + ci + " hold:tenure/\n", "records of Tenure itself"},
		{"ci " + ci + " hold:*\n", "asterisk"},
		{"ci " + ci + " hold:a read:n:once\n", `word 4: prefix "n:once" is within the names derived from "n"`},
		{"c@i " + ci + " hold:\n", "word 1 is not a principal name"},
		{
			"ci " + ci + " hold:\nci another-secret-of-ci admin:\n",
			"principals:2: the same name as in line 1, with other rights",
		},
		{"ci " + ci + " hold:\nweb " + ci + " hold:\n", "principals:2: the same secret as in line 1"},
	} {
		_, err := server.ParsePrincipals(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want an error with %q", c.text, err, c.want)
		}
	}
	// A secret in a wrong place is shown by no error.
	for _, text := range []string{
		"SECRET-SECRET-SECRET ci hold:\n", "ci hold:a SECRET-SECRET-SECRET\n",
		"ci SECRET-SECRET-SECRET\n", "SECRET-SECRET-SECRET@x ci hold:\n", "ci sha256:SECRET-SECRET-SECRET hold:\n",
	} {
		if _, err := server.ParsePrincipals(text); err == nil || strings.Contains(err.Error(), "SECRET-SECRET") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := server.OpenPrincipals(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a file that is not there is opened")
	}
}

func TestAFileOfPrincipalsIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "principals")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		write("ci " + ci + " hold:\n")
		log := &bytes.Buffer{}
		p, err := server.OpenPrincipals(file, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		known := func(secret string, want bool) {
			t.Helper()
			if _, ok := p.ByToken(secret); ok != want {
				t.Errorf("%q is known: %v, want %v; the log says %s", secret, ok, want, log)
			}
		}
		known(ci, true)
		known(web, false)
		write("web " + web + " hold:\n")
		known(ci, false)
		known(web, true)

		write("web " + web + " hld:\n") // bad: it stays as it was
		known(web, true)
		known(web, true)
		if n := strings.Count(log.String(), "is not valid: the previous principals stay"); n != 1 ||
			!strings.Contains(log.String(), "unknown right") {
			t.Errorf("it is said %d times: %s", n, log)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		known(web, true)
		time.Sleep(2 * time.Second)
		known(web, true)
		if n := strings.Count(log.String(), "is not valid: the previous principals stay"); n != 2 {
			t.Errorf("it is said %d times: %s", n, log)
		}
		write("ci " + ci + " hold:\n")
		known(ci, true)
		known(web, false)
		if strings.Contains(log.String(), "secret-of") {
			t.Errorf("a secret is logged: %s", log)
		}
	})
}

func TestWorldReadableFileIsReported(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("files have other rights here")
	}
	for text, told := range map[string]bool{
		"ci " + ci + " hold:\n": true,
		fmt.Sprintf("ci sha256:%x hold:\n", sha256.Sum256([]byte(ci))): false,
	} {
		file := filepath.Join(t.TempDir(), "principals")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		log := &bytes.Buffer{}
		if _, err := server.OpenPrincipals(file, slog.New(slog.NewTextHandler(log, nil))); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "every user can read it"); got != told {
			t.Errorf("told: %v, want %v: %s", got, told, log)
		}
	}
}

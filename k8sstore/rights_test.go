// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestRights: the role that Policy prints is enough, and without it the error says so.
func TestRights(t *testing.T) {
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	admin, app := mustConfig(t, file, "admin"), mustConfig(t, file, "app")
	namespace := newNamespace(t, file)
	wantNoRights := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(fmt.Sprint(err), "k8sstore.Policy") || !strings.Contains(fmt.Sprint(err), namespace) {
			t.Errorf("%s without rights: %v", what, err)
		}
	}
	s, err := Open(t.Context(), app, namespace, nil)
	if s != nil {
		t.Error("Open without rights has a store")
	}
	wantNoRights("Open", err)
	s, err = New(app, namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _, err = s.Claim(t.Context(), held("lock"))
	wantNoRights("Claim", err)
	_, err = s.Swap(t.Context(), held("lock"), held("lock"))
	if !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("Swap: %v", err)
	}
	wantNoRights("Delete", s.Delete(t.Context(), held("lock")))
	_, err = s.List(t.Context(), "", "")
	wantNoRights("List", err)
	_, err = s.Watch(t.Context(), "lock", func() {})
	wantNoRights("Watch", err)

	c, err := newClient(rest.CopyConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	defer c.drop()
	roles := resource{"/apis/rbac.authorization.k8s.io/v1", "roles"}
	post := c.request(http.MethodPost, roles, namespace, "", nil).SetHeader("Content-Type", "application/yaml").Body([]byte(Policy(namespace, "locks")))
	if err := post.Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := c.create(t.Context(), resource{roles.path, "rolebindings"}, namespace, json.RawMessage(`{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "locks"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "locks"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "app"}]}`), nil); err != nil {
		t.Fatal(err)
	}
	enginetest.Eventually(t, "the rights", func(ctx context.Context) error {
		if _, err := s.Get(ctx, "lock", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
			return err
		}
		return nil
	})
	// All that a store does.
	long := bytes.Repeat([]byte("x"), driver.MaxDataLen)
	rec := mustClaim(t, s, "lock")
	for _, data := range [][]byte{nil, long, long[1:], nil, long} {
		next := beat(rec)
		next.Data = data
		if rec, err = s.Swap(t.Context(), rec, next); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(t.Context(), "lock", driver.Eventual); err != nil {
		t.Error(err)
	}
	if page, err := s.List(t.Context(), "", ""); err != nil || len(page.Records) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	hints, _ := enginetest.Watched(t, s, "lock")
	if rec, err = s.Swap(t.Context(), rec, released(rec)); err != nil {
		t.Fatal(err)
	}
	enginetest.WantHint(t, hints, "a release")
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(Policy(namespace, "locks"), "\n") {
		if strings.Contains(line, "*") || strings.Contains(line, "secrets") || strings.Contains(line, "ClusterRole") {
			t.Errorf("the role has too many rights: %s", line)
		}
	}
	if left := configMapsOf(t, s); len(left) > 0 {
		t.Errorf("left behind, and so some right is missing: %q", left)
	}
}

// TestPolicyText: names are strings, whatever they look like, and the read-only role
// may write nothing.
func TestPolicyText(t *testing.T) {
	text := Policy("123", "true")
	for _, want := range []string{"\n  name: \"true\"\n", "\n  namespace: \"123\"\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, r := range Rights() {
		for _, verb := range r.Verbs {
			if want := `"` + verb + `"`; !strings.Contains(text, want) {
				t.Errorf("no %s in:\n%s", want, text)
			}
		}
	}
	look := ReadOnlyPolicy("jobs", "look")
	for _, verb := range []string{"create", "patch", "update", "delete", "*"} {
		if strings.Contains(look, `"`+verb+`"`) {
			t.Errorf("%s is in:\n%s", verb, look)
		}
	}
	if n := strings.Count(look, `verbs: ["get", "list"`); n != 2 {
		t.Errorf("%d resources can be read:\n%s", n, look)
	}
}

// TestRefusals: problems of a cluster are reported in time, and as permanent only if they are.
func TestRefusals(t *testing.T) {
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	config := mustConfig(t, file, "admin")
	other := func(change func(*rest.Config)) *rest.Config {
		c := rest.CopyConfig(config)
		change(c)
		return c
	}
	// An authority that did not sign the certificate of the API server.
	strange, err := enginetest.NewCertificate("strange", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		config    *rest.Config
		namespace string
		permanent bool
		says      string
	}{
		{"wrong token", other(func(c *rest.Config) { c.BearerToken = "nobody" }), "default", true, "does not know these credentials"},
		{"another authority", other(func(c *rest.Config) { c.CAFile, c.CAData = "", strange.Text }), "default", true, "certificate"},
		{"nobody listens", through(t, config, fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))), "default", false, "refused"},
		{"no namespace", config, "absent", true, "is there a namespace absent?"},
	} {
		s, err := New(c.config, c.namespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Claim(t.Context(), held("lock"))
		if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) != c.permanent || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if strings.Contains(fmt.Sprint(err), "nobody\"") {
			t.Errorf("%s: the token is in %q", c.name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := Config(filepath.Join(t.TempDir(), "absent"), ""); !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("no kubeconfig: %v", err)
	}
	if _, _, err := Config(file, "absent"); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(fmt.Sprint(err), "absent") {
		t.Errorf("no such context: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Config(empty, ""); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(fmt.Sprint(err), empty+" names no cluster") {
		t.Errorf("an empty kubeconfig: %v", err)
	}
	if got, namespace, err := Config(file, ""); err != nil || namespace != "default" || got.Host != config.Host {
		t.Errorf("%v, %q, %v", got, namespace, err)
	}
}

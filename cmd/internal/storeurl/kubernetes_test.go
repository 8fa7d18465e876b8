// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://a:1"}}, {name: b, cluster: {server: "https://b:1"}}]
users: [{name: u, user: {token: sesame}}]
contexts:
- {name: one, context: {cluster: a, user: u, namespace: jobs}}
- {name: two, context: {cluster: b, user: u}}
- {name: bad, context: {cluster: a, user: u, namespace: a/b}}
current-context: one
`

// What kubectl would use at this moment is found once, and stands in the URL from then on.
func TestKubernetesIsPinned(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // tests may run in a pod
	write := func(name, text string) string {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	config := write("config", kubeconfig)
	write("contexts", strings.NewReplacer("clusters: [", "no: [", "users: [", "none: [").Replace(kubeconfig))
	clusters, _, _ := strings.Cut(kubeconfig, "contexts:")
	write("clusters", clusters)
	for _, tc := range []struct{ env, url, want, host string }{
		{"config", "kubernetes:", "kubernetes://jobs?kubeconfig=" + config + "&context=one", "https://a:1"},
		{"config", "kubernetes://other", "kubernetes://other?kubeconfig=" + config + "&context=one", "https://a:1"},
		{"config", "kubernetes:?context=two", "kubernetes://default?kubeconfig=" + config + "&context=two", "https://b:1"},
		{"nowhere" + string(os.PathListSeparator) + "config", "kubernetes:", "kubernetes://jobs?kubeconfig=" + config +
			"&context=one", "https://a:1"},
		{"", "kubernetes:?kubeconfig=config&shared=true", "kubernetes://jobs?kubeconfig=" + config +
			"&context=one&shared=true", "https://a:1"},
		// No one file says it all.
		{
			"contexts" + string(os.PathListSeparator) + "clusters", "kubernetes:", "kubernetes://jobs?context=one",
			"https://a:1",
		},
	} {
		t.Setenv("KUBECONFIG", tc.env)
		l := mustParse(t, tc.url)
		p := l.written.clone()
		if c, err := p.kubernetesConfig(); err != nil || c.Host != tc.host ||
			!strings.HasPrefix(tc.want, "kubernetes://"+p.name+"?") {
			t.Errorf("%s with %s: %v, %q, %v", tc.url, tc.env, c, p.name, err)
		}
		if p.text(true) != tc.want || p.text(false) != tc.want {
			t.Errorf("%s with %s: %q, want %q", tc.url, tc.env, p.text(true), tc.want)
		}
		// Kubectl switches to another context.
		write("config", strings.Replace(kubeconfig, "current-context: one", "current-context: two", 1))
		if c, err := mustParse(t, tc.want).written.clone().kubernetesConfig(); err != nil || c.Host != tc.host {
			t.Errorf("%s: %v, %v", tc.want, c, err)
		}
		write("config", kubeconfig)
	}
	t.Setenv("KUBECONFIG", "config")
	for url, want := range map[string]string{
		"kubernetes:?context=bad":        "the namespace of the kubeconfig's context is not valid",
		"kubernetes:?context=three":      `there is no context "three"`,
		"kubernetes:?kubeconfig=nowhere": "there is no such kubeconfig",
	} {
		l := mustParse(t, url)
		if _, err := l.Open(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v; want an error with %q", url, err, want)
		}
	}
}

// untilRemoved is a script that ends when its file is removed.
const untilRemoved = "#!/bin/sh\nwhile test -e \"$0\"; do sleep 0.02; done\n"

// TestKubernetesPluginHangs: a plugin that does not end is given up, and one line says so.
func TestKubernetesPluginHangs(t *testing.T) {
	enginetest.MakeVerify(t)
	if runtime.GOOS == "windows" {
		t.Skip("the plugin is a script of sh")
	}
	t.Parallel()
	dir := t.TempDir()
	plugin, file := filepath.Join(dir, "plugin"), filepath.Join(dir, "config")
	text := strings.Replace(kubeconfig, "token: sesame", "exec: {apiVersion: client.authentication.k8s.io/v1, "+
		"command: "+plugin+", args: [sesame], interactiveMode: Never}", 1)
	for name, text := range map[string]string{file: text, plugin: untilRemoved} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l := mustParse(t, "kubernetes:?kubeconfig="+file)
	opened := make(chan error, 1)
	go func() {
		_, err := l.Open()
		opened <- err
	}()
	select {
	case err := <-opened:
		want := "kubernetes: no credentials: check the user's exec in the kubeconfig: the exec plugin \"" + plugin +
			"\" has not ended: context deadline exceeded"
		if err == nil || err.Error() != want {
			t.Errorf("%v; want %q", err, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for the plugin")
	}
}

// A plugin that hands out credentials must not read what is the command's to read.
func TestKubernetesPluginHasNoInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	text := strings.Replace(kubeconfig, "token: sesame", "exec: {apiVersion: client.authentication.k8s.io/v1, "+
		"command: plugin, interactiveMode: IfAvailable}", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l := mustParse(t, "kubernetes:?kubeconfig="+file)
	if config, err := l.written.clone().kubernetesConfig(); err != nil || config.ExecProvider == nil ||
		!config.ExecProvider.StdinUnavailable {
		t.Errorf("%+v, %v", config, err)
	}
}

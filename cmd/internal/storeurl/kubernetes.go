// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/k8sstore"
)

// namespaceForm, and its length, are the rule of Kubernetes: a DNS-1123 label. (A regular
// expression that counts to 63 takes time at every start of the command.)
var namespaceForm = pattern.Lazy(`^[a-z0-9]+(-+[a-z0-9]+)*$`)

const maxNamespace = 63

func isNamespace(name string) bool {
	return len(name) <= maxNamespace && namespaceForm().MatchString(name)
}

const nowhere = "https://localhost" // to which nothing is sent

// kubernetes has its namespace, cluster and credentials as kubectl has them, or the service
// account of the pod, where the URL does not say.
func kubernetes() *engine {
	return &engine{
		scheme: "kubernetes", usage: "kubernetes://NAMESPACE", bare: true,
		write: "write kubernetes://NAMESPACE, or kubernetes: for the namespace that kubectl, or the pod, uses",
		begin: beginKubernetes,
		parameters: []parameter{
			{name: "kubeconfig", read: func(_ *place, value string) (string, error) {
				switch {
				case strings.HasPrefix(value, "~"):
					return "", errors.New(`kubeconfig= begins with a "~", which the shell did not replace there: ` +
						`write the whole path, or $HOME for a shell`)
				case unexpanded().MatchString(value):
					return "", errors.New(`kubeconfig= begins with a "$", which the shell did not replace: ` +
						`write the whole path`)
				}
				return filepath.Abs(value)
			}},
			{name: "context"},
			{name: "prefix", preset: presetPrefix, read: readKubernetesPrefix},
			toggle("shared", "true"),
		},
		host: func(*place) string { return os.Getenv("KUBERNETES_SERVICE_HOST") }, // in a pod
		open: func(ctx context.Context, p *place, ask bool) (driver.Store, error) {
			config, err := p.kubernetesConfig()
			switch {
			case err != nil:
				return nil, err
			case !ask:
				return k8sstore.New(config, p.name, p.kubernetesOptions())
			}
			store, err := k8sstore.Open(ctx, config, p.name, p.kubernetesOptions())
			return store, briefKubernetes(err, config)
		},
		unasked: func(p *place) (driver.Store, error) {
			if p.name == "" { // a cluster knows it
				if _, err := p.kubernetesConfig(); err != nil {
					return nil, errors.Join(errors.New("no namespace is named: write kubernetes://NAMESPACE"), err)
				}
			}
			return k8sstore.New(&rest.Config{Host: nowhere}, p.name, p.kubernetesOptions())
		},
	}
}

func beginKubernetes(p *place, namespace, path string) error {
	switch {
	case strings.Contains(namespace+path, "@"):
		return errors.New("it contains a user or a password: credentials come from a kubeconfig, " +
			"or from the pod's service account; " + p.write)
	case strings.Contains(namespace+path, ":"):
		return errors.New("a host or a port is in the place of the namespace: " +
			"the address of the API server comes from a kubeconfig; " + p.write)
	case path != "":
		return errors.New("a path follows the namespace: write prefix= for the beginning of the names of the Leases; " +
			p.write)
	case namespace != "" && !isNamespace(namespace):
		return fmt.Errorf("namespace %.40q: it must have at most 63 lower-case letters, digits and dashes, "+
			"with no dash at either end", shown(namespace))
	}
	p.name = namespace
	return nil
}

// presetPrefix is the default prefix, in the form of URLs: without the last dot.
var presetPrefix = strings.TrimSuffix(k8sstore.DefaultPrefix, ".")

func readKubernetesPrefix(_ *place, value string) (string, error) {
	value = strings.TrimSuffix(value, ".")
	// Nothing is sent: it says whether there can be such a prefix.
	store, err := k8sstore.New(&rest.Config{Host: nowhere}, "default", &k8sstore.Options{Prefix: value + "."})
	if err != nil {
		return "", fmt.Errorf("prefix=%.60s: it must have at most 59 lower-case letters, digits, dashes and dots, "+
			"as in prefix=%s", shown(value), presetPrefix)
	}
	return value, store.Close()
}

func (p *place) kubernetesOptions() *k8sstore.Options {
	o := &k8sstore.Options{SharedLease: p.is("shared")}
	if prefix := p.values["prefix"]; prefix != "" {
		o.Prefix = prefix + "."
	}
	return o
}

// silenceKubernetes turns off client-go's log: a failure is reported once, by the error that
// the caller gets.
var silenceKubernetes = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

// kubernetesConfig returns how the cluster is reached, and puts what it finds into the place. It
// reads files, and sends nothing.
func (p *place) kubernetesConfig() (*rest.Config, error) {
	silenceKubernetes()
	p.pin()
	config, namespace, err := k8sstore.Config(p.values["kubeconfig"], p.values["context"])
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "k8sstore: ")
		return nil, &briefError{"kubernetes: " + text, err}
	}
	if p.name == "" {
		if !isNamespace(namespace) {
			return nil, driver.Permanent(errors.New("kubernetes: the namespace of the kubeconfig's context is not valid: " +
				"it must have at most 63 lower-case letters, digits and dashes"))
		}
		p.name = namespace
	}
	if plugin := config.ExecProvider; plugin != nil {
		// The terminal is the command's.
		plugin.StdinUnavailable, plugin.StdinUnavailableMessage = true, "log in first, or use other credentials"
	}
	return config, nil
}

// pin names the current context, and the file that defines it. Without a current context,
// as in a pod, or if files cannot be read, it names nothing: a later error reports that the
// cluster cannot be reached.
func (p *place) pin() {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.values["kubeconfig"]
	all, err := rules.Load()
	if err != nil {
		return
	}
	name := cmp.Or(p.values["context"], all.CurrentContext)
	at, ok := all.Contexts[name]
	if !ok {
		return
	}
	p.values["context"] = name
	file := at.LocationOfOrigin
	cluster, user := all.Clusters[at.Cluster], all.AuthInfos[at.AuthInfo]
	if p.is("kubeconfig") || file == "" || cluster != nil && cluster.LocationOfOrigin != file ||
		user != nil && user.LocationOfOrigin != file {
		return
	}
	if abs, err := filepath.Abs(file); err == nil {
		p.values["kubeconfig"] = abs
	}
}

// briefKubernetes returns an error of the engine that says what to do if no server has
// answered, without the address of the request.
func briefKubernetes(err error, config *rest.Config) error {
	status, sent := apierrors.APIStatus(nil), (*url.Error)(nil)
	if err == nil || errors.As(err, &status) || !errors.As(err, &sent) {
		return err
	}
	text := "kubernetes: the API server"
	if at, _, err := rest.DefaultServerUrlFor(config); err == nil && at.Host != "" {
		text = "kubernetes: " + at.Host // without what may be a password
	}
	certificate := (*tls.CertificateVerificationError)(nil)
	switch why := sent.Err.Error(); {
	case errors.As(err, &certificate):
		text += " has a certificate that is not trusted: " +
			"check the cluster's certificate-authority in the kubeconfig: " + certificate.Err.Error()
	case strings.HasPrefix(why, "getting credentials: "):
		why, _, _ = strings.Cut(strings.TrimPrefix(why, "getting credentials: "), "\n")
		text = "kubernetes: no credentials: check the user's exec in the kubeconfig: " + why
	case errors.Is(err, context.DeadlineExceeded):
		text += fmt.Sprintf(" does not answer within %v: check that it runs, and that the address is right", openPatience)
	default:
		text += " cannot be reached: check that it runs, and that the address in the kubeconfig is right: " + why
	}
	return &briefError{text, err}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/k8sstore"
)

// kubernetes is what the URL of a store in a Kubernetes cluster says:
//
//	kubernetes://NAMESPACE?kubeconfig=FILE&context=NAME&prefix=PREFIX&shared=true
//
// What it does not say is as kubectl has it, or the service account of the pod.
type kubernetes struct {
	namespace string // "": that of the context, or of the pod
	// kubeconfig is the whole path of a file. "": those of kubectl, or none in a pod.
	kubeconfig string
	context    string // "": the current one
	options    k8sstore.Options
}

// namespaceForm, and its length, are the rule of Kubernetes: a DNS-1123 label. (A regular
// expression that counts to 63 takes time at every start of the command.)
var namespaceForm = regexp.MustCompile(`^[a-z0-9]+(-+[a-z0-9]+)*$`)

const maxNamespace = 63

func isNamespace(name string) bool {
	return len(name) <= maxNamespace && namespaceForm.MatchString(name)
}

func (k *kubernetes) parameters() []parameter {
	config := file("kubeconfig", &k.kubeconfig)
	return []parameter{
		{config.name, config.text, func(value string) error {
			switch {
			case strings.HasPrefix(value, "~"):
				return errors.New(`kubeconfig= begins with a "~", which no shell has replaced there: ` +
					`write the whole path, or $HOME for a shell`)
			case unexpanded.MatchString(value):
				return errors.New(`kubeconfig= begins with a "$", for which nobody has put in the value: write the whole path`)
			}
			return config.read(value)
		}},
		word("context", &k.context),
		{"prefix", strings.TrimSuffix(k.options.Prefix, "."), func(value string) error {
			k.options.Prefix = strings.TrimSuffix(value, ".") + "."
			// Nothing is sent: it says whether there can be such a prefix.
			store, err := k8sstore.New(&rest.Config{Host: nowhere}, "default", &k.options)
			if err != nil {
				return fmt.Errorf("prefix=%.60s: it must have at most 59 lower-case letters, digits, dashes and dots, "+
					"as in prefix=%s",
					shown(strings.TrimSuffix(value, ".")), strings.TrimSuffix(k8sstore.DefaultPrefix, "."))
			}
			if k.options.Prefix == k8sstore.DefaultPrefix {
				k.options.Prefix = ""
			}
			return store.Close()
		}},
		toggle("shared", "true", &k.options.SharedLease),
	}
}

// nowhere is a server to which nothing is sent.
const nowhere = "https://localhost"

func readKubernetes(rest string) (engine, error) {
	const write = "write kubernetes://NAMESPACE, or kubernetes: for the namespace that kubectl, or the pod, uses"
	if rest == "" || rest[0] == '?' {
		rest = "//" + rest
	}
	namespace, path, query, err := cut(rest, write)
	switch {
	case err != nil:
		return nil, err
	case strings.Contains(namespace+path, "@"):
		return nil, errors.New("a user or a password stands in it: credentials come from a kubeconfig, " +
			"or from the pod's service account; " + write)
	case strings.Contains(namespace+path, ":"):
		return nil, errors.New("a host or a port stands where the namespace belongs: " +
			"the address of the API server comes from a kubeconfig; " + write)
	case path != "":
		return nil, errors.New("a path follows the namespace: write prefix= for what the names of the Leases begin with; " +
			write)
	case namespace != "" && !isNamespace(namespace):
		return nil, fmt.Errorf("namespace %.40q: it must have at most 63 lower-case letters, digits and dashes, "+
			"and no dash at an end", shown(namespace))
	}
	k := kubernetes{namespace: namespace}
	return k, readParameters(query, k.parameters())
}

func (k kubernetes) text(bool) string {
	text := "kubernetes:"
	if k.namespace != "" {
		text += "//" + k.namespace
	}
	return withParameters(text, k.parameters())
}

func (k kubernetes) host() string { return os.Getenv("KUBERNETES_SERVICE_HOST") } // in a pod

// silenceKubernetes has client-go log nothing: what goes wrong is told once, by the error
// of whoever it stops.
var silenceKubernetes = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

// open sees that the API server lets these credentials read.
func (k kubernetes) open(ctx context.Context, f *found) (driver.Store, error) {
	config, namespace, err := k.config(f)
	if err != nil {
		return nil, err
	}
	store, err := k8sstore.Open(ctx, config, namespace, &k.options)
	if err != nil {
		return nil, briefKubernetes(err, config)
	}
	return store, nil
}

func (k kubernetes) connect(_ context.Context, f *found) (driver.Store, error) {
	config, namespace, err := k.config(f)
	if err != nil {
		return nil, err
	}
	return k8sstore.New(config, namespace, &k.options)
}

// unasked needs a cluster only to know the namespace.
func (k kubernetes) unasked() (driver.Store, error) {
	namespace := k.namespace
	if namespace == "" {
		var err error
		if _, namespace, err = k.config(new(found)); err != nil {
			return nil, errors.Join(errors.New("no namespace is named: write kubernetes://NAMESPACE"), err)
		}
	}
	return k8sstore.New(&rest.Config{Host: nowhere}, namespace, &k.options)
}

// config returns how the cluster is reached, and the namespace. It reads files, and sends
// nothing.
func (k kubernetes) config(f *found) (*rest.Config, string, error) {
	silenceKubernetes()
	at := k.pinned()
	config, namespace, err := k8sstore.Config(at.kubeconfig, at.context)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "k8sstore: ")
		return nil, "", &briefError{"kubernetes: " + text, err}
	}
	if at.namespace == "" {
		if at.namespace = namespace; !isNamespace(namespace) {
			return nil, "", driver.Permanent(errors.New("kubernetes: the namespace of the kubeconfig's context is none: " +
				"it must have at most 63 lower-case letters, digits and dashes"))
		}
	}
	if plugin := config.ExecProvider; plugin != nil {
		// The terminal is the command's.
		plugin.StdinUnavailable, plugin.StdinUnavailableMessage = true, "log in before, or use other credentials"
	}
	f.note(at)
	return config, at.namespace, nil
}

// pinned names the context that is the current one, and the one file that it is from.
// Where there is none of these, as in a pod, and where files cannot be read, nothing is
// named: that the cluster cannot be reached is told later.
func (k kubernetes) pinned() kubernetes {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	all, err := rules.Load()
	if err != nil {
		return k
	}
	name := k.context
	if name == "" {
		name = all.CurrentContext
	}
	at, ok := all.Contexts[name]
	if !ok {
		return k
	}
	k.context = name
	if k.kubeconfig != "" {
		return k
	}
	file := at.LocationOfOrigin
	if c, ok := all.Clusters[at.Cluster]; ok && c.LocationOfOrigin != file {
		return k
	}
	if u, ok := all.AuthInfos[at.AuthInfo]; ok && u.LocationOfOrigin != file {
		return k
	}
	if abs, err := filepath.Abs(file); err == nil && file != "" {
		k.kubeconfig = abs
	}
	return k
}

// briefKubernetes returns an error of the engine that says what to do if nobody has
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
		text += " shows a certificate that is not to be trusted: see the cluster's certificate-authority in the kubeconfig: " +
			certificate.Err.Error()
	case strings.HasPrefix(why, "getting credentials: "):
		why, _, _ = strings.Cut(strings.TrimPrefix(why, "getting credentials: "), "\n")
		text = "kubernetes: there are no credentials: see the user's exec in the kubeconfig: " + why
	case errors.Is(err, context.DeadlineExceeded):
		text += fmt.Sprintf(" gives no answer within %v: see that it runs, and that the address is right", openPatience)
	default:
		text += " cannot be reached: see that it runs, and that the address in the kubeconfig is right: " + why
	}
	return &briefError{text, err}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/k8sstore"
)

// Kubernetes is what the URL of a store in a Kubernetes cluster says:
//
//	kubernetes://NAMESPACE?kubeconfig=FILE&context=NAME&prefix=PREFIX&shared=true
//
// What it does not say is as kubectl has it, or the service account of the pod.
type Kubernetes struct {
	Namespace string // "": that of the context, or of the pod
	// Kubeconfig is the whole path of a file. "": those of kubectl, or none in a pod.
	Kubeconfig string
	Context    string // "": the current one
	Options    k8sstore.Options

	found *found
}

// kubernetesParameters are those of a URL, in the order in which they are written.
var kubernetesParameters = []string{"kubeconfig", "context", "prefix", "shared"}

const writeKubernetes = "write kubernetes://NAMESPACE, or kubernetes: for the namespace that kubectl, or the pod, uses"

// namespaceForm, and its length, are the rule of Kubernetes: a DNS-1123 label. (A regular
// expression that counts to 63 takes time at every start of the command.)
var namespaceForm = regexp.MustCompile(`^[a-z0-9]+(-+[a-z0-9]+)*$`)

const maxNamespace = 63

func isNamespace(name string) bool {
	return len(name) <= maxNamespace && namespaceForm.MatchString(name)
}

func parseKubernetes(rest string) (Location, error) {
	k, err := readKubernetes(rest)
	if err != nil {
		return Location{}, err
	}
	return Location{engine: k, current: func() string { return k.found.or(k.URL()) }, open: k.open}, nil
}

func readKubernetes(text string) (Kubernetes, error) {
	k := Kubernetes{found: new(found)}
	text, slashes := strings.CutPrefix(text, "//")
	namespace, query, _ := strings.Cut(text, "?")
	switch {
	case strings.Contains(text, "#"):
		return k, errors.New(`it has a "#": write %23 in its place`)
	case !slashes && namespace != "":
		return k, errors.New("the two slashes are missing: " + writeKubernetes)
	case strings.Contains(namespace, "@"):
		return k, errors.New("a user or a password stands in it: credentials come from a kubeconfig, or from the pod's service account; " + writeKubernetes)
	case strings.Contains(namespace, ":"):
		return k, errors.New("a host or a port stands where the namespace belongs: the address of the API server comes from a kubeconfig; " + writeKubernetes)
	case strings.Contains(namespace, "/"):
		return k, errors.New("a path follows the namespace: write prefix= for what the names of the Leases begin with; " + writeKubernetes)
	case namespace != "" && !isNamespace(namespace):
		return k, fmt.Errorf("namespace %.40q: it must have at most 63 lower-case letters, digits and dashes, and no dash at an end", shown(namespace))
	}
	k.Namespace = namespace
	values, err := readParameters(query, kubernetesParameters)
	if err != nil {
		return k, err
	}
	if k.Kubeconfig = values.Get("kubeconfig"); k.Kubeconfig != "" {
		switch {
		case strings.HasPrefix(k.Kubeconfig, "~"):
			return k, errors.New(`kubeconfig= begins with a "~", which no shell has replaced there: write the whole path, or $HOME for a shell`)
		case unexpanded.MatchString(k.Kubeconfig):
			return k, errors.New(`kubeconfig= begins with a "$", for which nobody has put in the value: write the whole path`)
		case strings.ContainsRune(k.Kubeconfig, 0):
			return k, errors.New("kubeconfig= has a zero byte")
		}
		if err := absolute(&k.Kubeconfig); err != nil {
			return k, err
		}
	}
	k.Context = values.Get("context")
	if prefix := values.Get("prefix"); prefix != "" {
		k.Options.Prefix = strings.TrimSuffix(prefix, ".") + "."
	}
	if err := readSwitches(values, false, map[string]*bool{"shared": &k.Options.SharedLease}); err != nil {
		return k, err
	}
	return k, checkKubernetes(k.Options)
}

// checkKubernetes says whether there can be such options. Nothing is sent.
func checkKubernetes(o k8sstore.Options) error {
	store, err := k8sstore.New(&rest.Config{Host: "https://localhost"}, "default", &o)
	if err != nil { // the prefix is all that can be wrong
		return fmt.Errorf("prefix=%.60s: it must have at most 59 lower-case letters, digits, dashes and dots, as in prefix=%s", shown(strings.TrimSuffix(o.Prefix, ".")), strings.TrimSuffix(k8sstore.DefaultPrefix, "."))
	}
	return store.Close()
}

// URL returns the URL that says the same: what is a default is left out, and the rest
// stands in one order.
func (k Kubernetes) URL() string {
	values := map[string]string{"kubeconfig": k.Kubeconfig, "context": k.Context}
	if k.Options.Prefix != k8sstore.DefaultPrefix {
		values["prefix"] = strings.TrimSuffix(k.Options.Prefix, ".")
	}
	if k.Options.SharedLease {
		values["shared"] = "true"
	}
	text := "kubernetes:"
	if k.Namespace != "" {
		text += "//" + k.Namespace
	}
	return withParameters(text, kubernetesParameters, values)
}

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
	"path/filepath"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/k8sstore"
)

// silenceKubernetes has client-go log nothing: what goes wrong is told once, by the error
// of whoever it stops.
var silenceKubernetes = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

// open opens the store, and sees that the API server lets these credentials read.
func (k Kubernetes) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	config, namespace, err := k.Config()
	if err != nil {
		return nil, err
	}
	store, err := k8sstore.Open(ctx, config, namespace, &k.Options)
	if err != nil {
		return nil, briefKubernetes(err, config)
	}
	return store, nil
}

func (k Kubernetes) connect(context.Context) (driver.Store, error) {
	config, namespace, err := k.Config()
	if err != nil {
		return nil, err
	}
	return k8sstore.New(config, namespace, &k.Options)
}

// unasked needs a cluster only to know the namespace.
func (k Kubernetes) unasked() (driver.Store, error) {
	namespace := k.Namespace
	if namespace == "" {
		var err error
		if _, namespace, err = k.Config(); err != nil {
			return nil, errors.Join(errors.New("no namespace is named: write kubernetes://NAMESPACE"), err)
		}
	}
	return k8sstore.New(&rest.Config{Host: "https://localhost"}, namespace, &k.Options)
}

// Config returns how the cluster is reached, and the namespace. It reads files, and sends
// nothing.
func (k Kubernetes) Config() (*rest.Config, string, error) {
	silenceKubernetes()
	at := k.pinned()
	config, namespace, err := k8sstore.Config(at.Kubeconfig, at.Context)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "k8sstore: ")
		return nil, "", &briefError{"kubernetes: " + text, err}
	}
	if at.Namespace == "" {
		if at.Namespace = namespace; !isNamespace(namespace) {
			return nil, "", driver.Permanent(errors.New("kubernetes: the namespace of the kubeconfig's context is none: it must have at most 63 lower-case letters, digits and dashes"))
		}
	}
	if plugin := config.ExecProvider; plugin != nil {
		// The terminal is the command's.
		plugin.StdinUnavailable, plugin.StdinUnavailableMessage = true, "log in before, or use other credentials"
	}
	k.found.note(at.URL())
	return config, at.Namespace, nil
}

// pinned names the context that is the current one, and the one file that it is from.
// Where there is none of these, as in a pod, and where files cannot be read, nothing is
// named: that the cluster cannot be reached is told later.
func (k Kubernetes) pinned() Kubernetes {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.Kubeconfig
	all, err := rules.Load()
	if err != nil {
		return k
	}
	name := k.Context
	if name == "" {
		name = all.CurrentContext
	}
	at, ok := all.Contexts[name]
	if !ok {
		return k
	}
	k.Context = name
	if k.Kubeconfig != "" {
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
		k.Kubeconfig = abs
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
		text += " shows a certificate that is not to be trusted: see the cluster's certificate-authority in the kubeconfig: " + certificate.Err.Error()
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

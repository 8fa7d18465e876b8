// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenurelock/tenure/driver"
)

// Config returns how to reach a cluster, and its namespace: from the file kubeconfig, or,
// if it is empty, like kubectl, from $KUBECONFIG, ~/.kube/config, or else the service
// account of the pod that the process runs in. The context is a context of the file, its
// current one if empty. It sends nothing. An error is permanent ([driver.ErrPermanent]),
// and quotes no credentials.
func Config(kubeconfig, context string) (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	from := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	all, err := from.RawConfig()
	if err != nil {
		return nil, "", noConfig(err, kubeconfig)
	}
	if _, ok := all.Contexts[context]; context != "" && !ok {
		return nil, "", noConfig(fmt.Errorf("there is no context %q: see kubectl config get-contexts", context), kubeconfig)
	}
	if kubeconfig != "" {
		// Not the cluster of the pod, if a file names no cluster.
		from = clientcmd.NewNonInteractiveClientConfig(all, context, overrides, rules)
	}
	if config, err = from.ClientConfig(); err == nil {
		namespace, _, err = from.Namespace()
	}
	if err != nil {
		return nil, "", noConfig(err, kubeconfig)
	}
	return config, namespace, nil
}

// noConfig returns an error that says what to do.
func noConfig(err error, kubeconfig string) error {
	switch {
	case clientcmd.IsEmptyConfig(err) && kubeconfig != "":
		err = fmt.Errorf("kubeconfig %s names no cluster, or no current context: see kubectl config view", kubeconfig)
	case clientcmd.IsEmptyConfig(err):
		err = errors.New("no kubeconfig names a cluster, and this is not a pod with a service account: name a file that names one, or set KUBECONFIG")
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("there is no such kubeconfig: %w", err)
	}
	return fmt.Errorf("k8sstore: %w", driver.NotApplied(driver.Permanent(err)))
}

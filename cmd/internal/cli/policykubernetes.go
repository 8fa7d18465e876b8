// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"regexp"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/k8sstore"
)

// atCluster is a command on the store of a Kubernetes cluster under way.
type atCluster struct {
	*tableRun
	url storeurl.Kubernetes
}

// noTable says that there is none to be made, or to be shown.
func noTable(atCluster) error {
	return usage("Kubernetes needs no table: tenure table policy prints the Role that a store there needs, and tenure doctor examines it")
}

// defaultRole is the name of a Role that nobody names.
const defaultRole = "tenure"

// roleForm is narrower than the rule of Kubernetes, by which people would have to quote
// what they write into a shell.
var roleForm = regexp.MustCompile(`^[A-Za-z0-9]+([-_.:]+[A-Za-z0-9]+)*$`)

const maxRole = 253

// onKubernetes prints the Role that a service account needs.
func (f *policyCmd) onKubernetes(a atCluster) error {
	role := defaultRole
	if f.Role != nil {
		if role = *f.Role; role == "" {
			return usage("--role is empty: name the role, or leave the flag out")
		}
	}
	if len(role) > maxRole || !roleForm.MatchString(role) {
		return usage("--role %.60q: it must have letters, digits and signs of - _ . : alone, and begin and end with a letter or digit", role)
	}
	namespace := a.url.Namespace
	if namespace == "" {
		var err error
		if _, namespace, err = a.url.Config(); err != nil {
			return a.failed(errors.Join(errors.New("no namespace is named: write kubernetes://NAMESPACE"), err))
		}
	}
	text := k8sstore.Policy(namespace, role)
	if f.ReadOnly {
		text = k8sstore.ReadOnlyPolicy(namespace, role)
	}
	return a.print([]byte(text))
}

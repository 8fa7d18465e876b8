// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Right is what a store must be allowed to do with one kind of objects in its namespace.
type Right struct {
	Group, Resource string
	Verbs           []string
}

// Rights returns all that a store needs: the rules of the Role that [Policy] prints.
func Rights() []Right {
	return []Right{
		{"coordination.k8s.io", "leases", []string{"get", "list", "watch", "create", "patch", "delete"}},
		{"", "configmaps", []string{"get", "list", "create", "delete"}},
	}
}

// Policy returns the Role, in YAML, that a store needs in a namespace: all of it, and no
// more. Bind it to the service account of the program. ConfigMaps are used for data of
// more than 4 kB, and for a record with very many requests; without these rights only
// such writes are refused.
func Policy(namespace, role string) string { return policy(namespace, role, nil) }

// ReadOnlyPolicy returns the Role, in YAML, of a program that reads locks, and takes
// none.
func ReadOnlyPolicy(namespace, role string) string {
	return policy(namespace, role, map[string]bool{"get": true, "list": true, "watch": true})
}

// policy returns a Role with the verbs of only, with all verbs if it is nil.
func policy(namespace, role string, only map[string]bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: %s\n  namespace: %s\nrules:\n", quoted(role), quoted(namespace))
	for _, r := range Rights() {
		var verbs []string
		for _, v := range r.Verbs {
			if only == nil || only[v] {
				verbs = append(verbs, quoted(v))
			}
		}
		fmt.Fprintf(&b, "- apiGroups: [%s]\n  resources: [%s]\n  verbs: [%s]\n", quoted(r.Group), quoted(r.Resource), strings.Join(verbs, ", "))
	}
	return b.String()
}

// quoted returns a string of YAML: without quotes a namespace called 123 would be a number.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Sprintf("k8sstore: a string cannot be quoted: %v", err)) //nolint:forbidigo // strings always can
	}
	return string(b)
}

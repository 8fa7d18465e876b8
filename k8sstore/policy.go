// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import "fmt"

// Policy returns the Role, in YAML, that a store needs in a namespace: all of it, and no
// more. Bind it to the service account of the program. ConfigMaps are used for data of
// more than 4 kB, and for a record with very many requests; without these rights such
// writes alone are refused.
func Policy(namespace, role string) string {
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: %s
  namespace: %s
rules:
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["get", "list", "create", "delete"]
`, role, namespace)
}

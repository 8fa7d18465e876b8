// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// The program kube-apiserver, which the tests of k8sstore run on: that of Kubernetes
// itself, built from its module, with a handful of settings for a server on the loopback
// interface. It is a module of its own and not in go.work, so that no other module
// depends on it.
//
//	kube-apiserver DIR PORT ETCD [FLAG...]
//
// In DIR it keeps its certificate and its keys, and writes the file kubeconfig, with two
// contexts: "admin" may do everything, and is the current one; "app" has no rights.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: kube-apiserver DIR PORT ETCD [FLAG...]")
		os.Exit(64)
	}
	dir, port, etcd := os.Args[1], os.Args[2], os.Args[3]
	key, tokens := filepath.Join(dir, "accounts.key"), filepath.Join(dir, "tokens.csv")
	if err := errors.Join(
		makeKey(key),
		os.WriteFile(tokens, []byte("admin,admin,1,\"system:masters\"\napp,app,2\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "kubeconfig"), fmt.Appendf(nil, kubeconfig, port), 0o600),
	); err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		os.Exit(1)
	}
	command := app.NewAPIServerCommand()
	command.SetArgs(append([]string{
		"--etcd-servers=" + etcd, "--cert-dir=" + dir, "--secure-port=" + port,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC",
	}, os.Args[4:]...))
	os.Exit(cli.Run(command))
}

// kubeconfig believes the certificate that the server makes for itself.
const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- {name: test, cluster: {server: "https://127.0.0.1:%s", certificate-authority: apiserver.crt}}
users:
- {name: admin, user: {token: admin}}
- {name: app, user: {token: app}}
contexts:
- {name: admin, context: {cluster: test, user: admin, namespace: default}}
- {name: app, context: {cluster: test, user: app, namespace: default}}
current-context: admin
`

// makeKey makes a key for the tokens of service accounts, unless there is one.
func makeKey(file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(file, pem.EncodeToMemory(&block), 0o600)
}

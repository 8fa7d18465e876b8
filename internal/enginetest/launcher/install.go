// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// MissingError says that a program is not installed, and how to install it.
type MissingError struct{ Name, How string }

// Error implements error.
func (e *MissingError) Error() string { return e.Name + " is not installed: " + e.How }

// Root returns the folder of the checkout in which this process runs.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, none := os.Stat(filepath.Join(dir, "go.work")); none == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.work in this folder or above it: the engines are below a checkout")
		}
	}
	return "", err
}

// folder is where the engine's programs are, or are to be.
func (k Kind) folder() (string, error) {
	root, err := Root()
	return filepath.Join(root, ".bin", "engines", k.Name+"-"+k.Version), err
}

// Program returns a file of an engine. The error is a [*MissingError] if the engine is not
// installed.
func Program(engine, file string) (string, error) {
	k, err := Find(engine)
	if err != nil {
		return "", err
	}
	folder, err := k.folder()
	if err == nil && !k.installed(folder) {
		err = &MissingError{engine, "scripts/engines install " + engine + " installs it"}
	}
	return filepath.Join(folder, file), err
}

func (k Kind) installed(folder string) bool {
	return !slices.ContainsFunc(k.files, func(file string) bool {
		_, err := os.Stat(filepath.Join(folder, file))
		return err != nil
	})
}

// Ensure installs the engine unless it is installed.
func (k Kind) Ensure(ctx context.Context) error {
	for _, name := range k.needs {
		other, err := Find(name)
		if err == nil {
			err = other.Ensure(ctx)
		}
		if err != nil {
			return err
		}
	}
	if k.Version == "" { // the system's
		return k.install(ctx, k, "")
	}
	folder, err := k.folder()
	if err != nil || k.installed(folder) {
		return err
	}
	programs := filepath.Dir(folder)
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return err
	}
	// One process at a time installs: another may have done so meanwhile.
	mutex, err := os.OpenFile(filepath.Join(programs, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer mutex.Close() //nolint:errcheck // it has nothing
	if err := lock(mutex); err != nil || k.installed(folder) {
		return err
	}
	// The folder appears when it is complete. A killed process may have left an incomplete one.
	made := filepath.Join(programs, "new")
	if err := errors.Join(os.RemoveAll(made), os.Mkdir(made, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(made) //nolint:errcheck // the next one does
	fmt.Fprintf(os.Stderr, "scripts/engines: installing %s %s%s\n", k.Name, k.Version, k.takes)
	err = k.install(ctx, k, made)
	if err == nil && !k.installed(made) {
		err = fmt.Errorf("there is no %s", strings.Join(k.files, ", "))
	}
	if err != nil {
		return fmt.Errorf("cannot install %s %s: %w", k.Name, k.Version, err)
	}
	// There may be a folder of an older checkout, with fewer files.
	return errors.Join(os.RemoveAll(folder), os.Rename(made, folder))
}

// tool runs a program in a folder of the checkout. Its output goes to standard error:
// standard output belongs to the command of a run.
func tool(ctx context.Context, dir string, env []string, args ...string) error {
	if _, err := exec.LookPath(args[0]); err != nil {
		return fmt.Errorf("%w: run scripts/setup, or install it", err)
	}
	root, err := Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(root, dir), append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// npm installs a package of the npm registry.
func npm(name string) func(context.Context, Kind, string) error {
	return func(ctx context.Context, k Kind, folder string) error {
		// --prefix, or npm would look for a package.json in all folders above.
		return tool(ctx, "", nil, "npm", "install", "--prefix", folder, "--loglevel=error", "--no-audit", "--no-fund",
			"--ignore-scripts", name+"@"+k.Version)
	}
}

// goInstall builds a program of another module.
func goInstall(name string) func(context.Context, Kind, string) error {
	return func(ctx context.Context, k Kind, folder string) error {
		return tool(ctx, "", []string{"GOWORK=off", "GOFLAGS=", "GOBIN=" + folder},
			"go", "install", "-trimpath", "-ldflags=-s -w", name+"@v"+k.Version)
	}
}

// installEtcd builds etcd, whose programs are tools of the module test.
func installEtcd(ctx context.Context, _ Kind, folder string) error {
	for name, file := range map[string]string{"server": "etcd", "etcdctl": "etcdctl", "etcdutl": "etcdutl"} {
		err := tool(ctx, "test", nil,
			"go", "build", "-o", filepath.Join(folder, file), "go.etcd.io/etcd/"+name+"/v3")
		if err != nil {
			return err
		}
	}
	return nil
}

// systemPostgreSQL says whether it is installed.
func systemPostgreSQL(context.Context, Kind, string) error {
	_, err := PostgresProgram("initdb")
	return err
}

// installZooKeeper copies its Maven artifacts.
func installZooKeeper(ctx context.Context, _ Kind, folder string) error {
	return tool(ctx, "internal/enginetest/launcher", nil,
		"mvn", "-q", "-B", "-f", "zookeeper.pom.xml", "dependency:copy", "-DoutputDirectory="+folder)
}

// installKubernetes builds an API server from a module of its own, and sets its version, which
// the go command would not stamp.
func installKubernetes(ctx context.Context, k Kind, folder string) error {
	const module = "k8sstore/internal/apiserver"
	root, err := Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "k8s.io/kubernetes v"+k.Version+"\n") {
		return fmt.Errorf("%s requires another version of Kubernetes", module)
	}
	return tool(ctx, module, []string{"GOWORK=off"}, "go", "build", "-trimpath",
		"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v"+k.Version,
		"-o", filepath.Join(folder, "kube-apiserver"), ".")
}

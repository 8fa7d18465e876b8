// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The guardian of a command is this program again. It initializes little of it, and no client
// of an engine: see init of package guard.
func TestGuardianInitializesLittle(t *testing.T) {
	t.Parallel()
	initialized := func(args ...string) (packages []string) {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, _ := cmd.CombinedOutput() // no guardian goes on without its pipes
		for line := range strings.Lines(string(out)) {
			if name, ok := strings.CutPrefix(line, "init "); ok {
				name, _, _ = strings.Cut(name, " @")
				packages = append(packages, name)
			}
		}
		return packages
	}
	all, guardian := initialized("-test.run=^$"), initialized("--tenure-guardian")
	if len(guardian) == 0 || len(guardian) > len(all)/3 {
		t.Errorf("a guardian initializes %d packages of %d", len(guardian), len(all))
	}
	for _, name := range guardian {
		for _, heavy := range []string{
			"github.com/alecthomas/", "github.com/aws/aws-sdk-go-v2/service/", "github.com/prometheus/",
			"github.com/tenurelock/tenure/cmd/", "go.etcd.io/", "google.golang.org/genproto", "k8s.io/", "modernc.org/sqlite",
		} {
			if strings.HasPrefix(name, heavy) {
				t.Errorf("a guardian initializes %s", name)
			}
		}
	}
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// network makes two hosts: network namespaces with one cable between them. In each the
// store is at port 8000 of its loopback. The route is "open"; or "shut", where the cable
// has no route to the other one's address; or "deaf", where what the first host sends to
// the second is dropped on the way. A holder runs on the first host, and a waiter, which
// polls once in two minutes, on the second. It prints how long a hand-over has taken.
const network = `
set -eu
ip link set lo up
unshare -n sleep 300 & one=$!
unshare -n sleep 300 & two=$!
trap 'kill $one $two $forwarders 2>/dev/null' EXIT
forwarders=
until [ "$(readlink /proc/$one/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
until [ "$(readlink /proc/$two/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add left type veth peer name right
ip link set left netns $one
ip link set right netns $two
first() { nsenter -t $one -n "$@"; }
second() { nsenter -t $two -n "$@"; }
first ip link set lo up
second ip link set lo up
first ip link set left up
second ip link set right up
case $ROUTE in
shut)
	first ip addr add 10.77.1.1/32 dev left
	second ip addr add 10.77.2.1/32 dev right
	a=10.77.1.1 b=10.77.2.1 ;;
*)
	first ip addr add 10.77.0.1/24 dev left
	second ip addr add 10.77.0.2/24 dev right
	a=10.77.0.1 b=10.77.0.2 ;;
esac
if [ $ROUTE = deaf ]; then # its answers go to a machine that is not there
	first ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:99 dev left nud permanent
fi
mkfifo up listens
for host in $one $two; do
	nsenter -t $host -n forward tcp:127.0.0.1:8000 unix:store.sock >listens & forwarders="$forwarders $!"
	cat listens
done
first tenure run --bell $a:4711 job -- sh -c 'echo >up; sleep 3; date +%s%3N >freed' & holder=$!
cat up
second tenure run --bell $b:4711 --refresh 2m job -- sh -c 'date +%s%3N >got'
wait $holder
echo $(($(cat got) - $(cat freed))) >took
`

// Two hosts with a route between them hand a lock over at once; without one, or where
// datagrams arrive in one direction alone, by polling.
func TestBellBetweenHosts(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	needUnshare(t, "-Urn")
	client := connect(t, e)
	for _, route := range []string{"open", "shut", "deaf"} {
		t.Run(route, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			table := "tenure-test-" + rand.Text()
			if err := dynamostore.CreateTable(t.Context(), client, table, nil); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := dropTables(context.WithoutCancel(t.Context()), client, table); err != nil {
					t.Error(err)
				}
			})
			engine, err := url.Parse(e.URL)
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", filepath.Join(dir, "store.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go serveForward(l, "tcp", engine.Host)

			c := exec.CommandContext(t.Context(), "timeout", "240", "unshare", "-Urn", "sh", "-c", network)
			c.WaitDelay = time.Second
			c.Dir = dir
			c.Env = append(os.Environ(), "ROUTE="+route, "HOME="+dir, "AWS_EC2_METADATA_DISABLED=true",
				"TENURE_STORE=dynamodb://"+table+"?region=local&endpoint=http://127.0.0.1:8000")
			out, err := c.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "took"))
			if err != nil {
				t.Fatal(err)
			}
			ms := strings.TrimSpace(string(text))
			t.Logf("handed over within %s ms", ms)
			if quick := len(ms) < 4 || len(ms) == 4 && ms < "5000"; quick != (route == "open") {
				t.Errorf("with the route %s a hand-over took %s ms", route, ms)
			}
		})
	}
}

// forward is a program that listens at one address and passes what comes to another:
//
//	forward tcp:HOST:PORT unix:PATH
//
// It closes its standard output when it listens.
func forward() error {
	from, to := os.Args[1], os.Args[2]
	network, address, _ := strings.Cut(from, ":")
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	if err := os.Stdout.Close(); err != nil {
		return err
	}
	network, address, _ = strings.Cut(to, ":")
	serveForward(l, network, address)
	return nil
}

// serveForward passes connections on until the listener is closed.
func serveForward(l net.Listener, network, address string) {
	for {
		in, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() {
			defer in.Close()
			out, err := net.Dial(network, address)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.Close()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

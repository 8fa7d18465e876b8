// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// The processes of a test are the test binary itself, with these variables.
const (
	workerKubeconfig = "K8SSTORE_TEST_KUBECONFIG"
	workerNamespace  = "K8SSTORE_TEST_NAMESPACE"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // electors of client-go tell what they do
	enginetest.Main(m, workerKubeconfig, count)
}

// counterObject is the ConfigMap with the counter, and what was written.
const counterObject = "counter"

// count adds to a counter under a lock, again and again. It reads and writes it in two
// steps, as a program does whose resource knows no transactions: two holders would write
// the same number.
func count(ctx context.Context, kubeconfig string) error {
	namespace := os.Getenv(workerNamespace)
	config, _, err := Config(kubeconfig, "admin")
	if err != nil {
		return err
	}
	s, err := Open(ctx, config, namespace, nil)
	if err != nil {
		return err
	}
	client, err := tenure.New(s, &tenure.Options{LeaseDuration: 3 * time.Second})
	if err != nil {
		return err
	}
	for {
		err := client.Run(ctx, "counter", nil, func(ctx context.Context, lease *tenure.Lease) error {
			n, _, err := counterAt(ctx, s)
			if err != nil || lease.Check() != nil {
				return err
			}
			entry := fmt.Sprintf("log.%06d.%d", n+1, os.Getpid())
			return s.calls.patch(ctx, configMaps, namespace, counterObject, map[string]any{
				"data": map[string]string{"counter": strconv.Itoa(n + 1), entry: fmt.Sprint(lease.Token())},
			}, nil)
		})
		if err != nil && !errors.Is(err, tenure.ErrLost) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

func counterAt(ctx context.Context, s *Store) (n int, log []enginetest.Counted, err error) {
	var o corev1.ConfigMap
	if err := s.calls.get(ctx, configMaps, s.namespace, counterObject, nil, &o); err != nil {
		return 0, nil, err
	}
	if n, err = strconv.Atoi(o.Data["counter"]); err != nil {
		return 0, nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		if !strings.HasPrefix(key, "log.") {
			continue
		}
		e := enginetest.Counted{}
		if _, err := fmt.Sscanf(key, "log.%d.%d", &e.N, &e.PID); err != nil {
			return 0, nil, err
		}
		if e.Token, err = strconv.ParseUint(o.Data[key], 10, 64); err != nil {
			return 0, nil, err
		}
		log = append(log, e)
	}
	return n, log, nil
}

// TestProcessesKilled has twenty processes count, and kills one after the other.
func TestProcessesKilled(t *testing.T) {
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	namespace := newNamespace(t, file)
	s := mustOpen(t, mustConfig(t, file, "admin"), namespace, nil)
	begin := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: counterObject}, Data: map[string]string{"counter": "0"},
	}
	if err := s.calls.create(t.Context(), configMaps, namespace, begin, nil); err != nil {
		t.Fatal(err)
	}
	env := []string{workerKubeconfig + "=" + file, workerNamespace + "=" + namespace}
	enginetest.CountUnderKills(t, env, func(ctx context.Context) (int, []enginetest.Counted, error) { return counterAt(ctx, s) })
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// disks asks each member how long its disk takes for a write of the log.
func (x *examination) disks(ctx context.Context) {
	for _, m := range x.members {
		if m.status == nil {
			continue
		}
		took, n, err := x.f.syncs(ctx, m.url)
		within := took.String()
		if took == math.MaxInt64 {
			within = "more time than it counts"
		}
		text := fmt.Sprintf("%s: 99 of 100 writes of the log are on the disk within %s, of %d since it was started", m.node, within, n)
		switch {
		case err != nil:
			x.ok("disk", fmt.Sprintf("%s does not tell how long its disk takes (%v)", m.node, err), "see latency below, which is of 20 writes through the cluster")
		case n >= enoughSyncs && took > slowSync:
			x.warn("disk", text, fmt.Sprintf("etcd wants %v: an SSD that nothing else writes to; a slow disk costs elections, and leases when it stalls", slowSync))
		default:
			x.ok("disk", text, "")
		}
	}
}

// enoughSyncs is how many writes of a log say something of its disk.
const enoughSyncs = 100

// syncMetric is the histogram of how long the log takes to be on the disk.
const syncMetric = "etcd_disk_wal_fsync_duration_seconds_bucket"

// syncs returns within how long 99 of 100 writes of a member's log are on its disk, of how
// many.
func (f *Folder) syncs(ctx context.Context, url string) (took time.Duration, n uint64, err error) {
	l, err := f.location()
	if err != nil {
		return 0, 0, err
	}
	e, _ := l.Etcd()
	config, err := e.Encryption(true)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, 0, errors.New(answer.Status)
	}
	return quantile(io.LimitReader(answer.Body, 16<<20), syncMetric, 0.99)
}

// bucket counts what took so long at most, in seconds.
type bucket struct {
	most float64
	n    uint64
}

// quantile returns the bound of the bucket in which a part of what a histogram has counted
// is, and how much that is: lines such as NAME{le="0.004"} 17.
func quantile(text io.Reader, name string, part float64) (took time.Duration, n uint64, err error) {
	var all []bucket
	for lines := bufio.NewScanner(text); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name+`{le="`)
		if !ok {
			continue
		}
		bound, count, ok := strings.Cut(rest, `"} `)
		most, bErr := strconv.ParseFloat(bound, 64)
		counted, cErr := strconv.ParseUint(count, 10, 64)
		if !ok || bErr != nil || cErr != nil {
			return 0, 0, fmt.Errorf("metric %s cannot be read", name)
		}
		all = append(all, bucket{most, counted})
	}
	if len(all) == 0 || all[len(all)-1].n == 0 {
		return 0, 0, fmt.Errorf("there is no metric %s yet", name)
	}
	n = all[len(all)-1].n
	i := slices.IndexFunc(all, func(b bucket) bool { return float64(b.n) >= part*float64(n) })
	if math.IsInf(all[i].most, 1) {
		return time.Duration(math.MaxInt64), n, nil
	}
	return time.Duration(all[i].most * float64(time.Second)), n, nil
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/tenurelock/tenure"
)

// progressFlags tie the heartbeats to what the command shows of its work.
type progressFlags struct {
	ProgressFile    *string        `empty:"name a file that COMMAND touches"`
	ProgressTimeout *time.Duration `must:"be positive"`
}

// check takes the time over into the options of the client.
func (f *progressFlags) check(j *job) error {
	switch {
	case f.ProgressFile == nil && f.ProgressTimeout == nil:
		return nil
	case f.ProgressTimeout == nil:
		return usage("--progress-file needs --progress-timeout: how long the file may stay as it is")
	case f.ProgressFile == nil:
		return usage("--progress-timeout needs --progress-file: what COMMAND touches to show that it gets on")
	}
	// COMMAND may change its folder before it touches the file.
	file, err := filepath.Abs(*f.ProgressFile)
	if err != nil {
		return usage("--progress-file: %w", err)
	}
	*f.ProgressFile = file
	j.progress = *f.ProgressTimeout
	return nil
}

// tell says which file the command shows its progress by.
func (f *progressFlags) tell(t *command) {
	if f.ProgressFile != nil {
		t.progressFile = *f.ProgressFile
		t.extra = append(t.extra, "TENURE_PROGRESS_FILE="+*f.ProgressFile)
	}
}

// looksForProgress is how often the file is looked at within the time that it has.
const looksForProgress = 10

// watchProgress reports progress to the lease whenever the file has changed, until the
// returned function is called. What is in the file does not matter.
func (t *command) watchProgress(lease *tenure.Lease) (stop func()) {
	if t.progressFile == "" {
		return func() {}
	}
	pause := min(time.Second, t.client.Options().ProgressTimeout/looksForProgress)
	last, _ := os.Stat(t.progressFile) // what was there before shows no progress
	return beside(context.Background(), func(ctx context.Context) {
		for sleep(ctx, pause) == nil {
			now, err := os.Stat(t.progressFile)
			if err != nil {
				continue // it is being replaced, or is not there yet
			}
			if last == nil || !os.SameFile(now, last) || !now.ModTime().Equal(last.ModTime()) || now.Size() != last.Size() {
				lease.Progress()
			}
			last = now
		}
	})
}

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package recipes has examples and tests of schedulers that need no adapter: robfig/cron and
// asynq. See docs/guides/jobs.md.
package recipes

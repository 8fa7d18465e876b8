// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Loaded into dynalite by package launcher. A client that goes away in the midst
// of a request would else end the engine: it throws that error where nobody
// catches it (index.js, "req.on('error')", of 4.0.0).
'use strict'

process.on('uncaughtException', (err) => {
  if (err.code === 'ECONNRESET') return
  console.error(err)
  process.exit(1)
})

# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

job "scheduler" {
  type = "service"

  group "scheduler" {
    count = 2

    task "scheduler" {
      driver       = "docker"
      kill_timeout = "60s"

      config {
        image   = "scheduler:1.4.2"
        command = "/usr/local/bin/tenure"
        args    = ["lead", "--label", "1.4.2", "scheduler", "--", "/usr/local/bin/scheduler"]
      }

      env {
        TENURE_STORE = "postgres://tenure@db-1/locks?sslmode=verify-full"
      }

      resources {
        cpu    = 200
        memory = 256
      }
    }
  }
}

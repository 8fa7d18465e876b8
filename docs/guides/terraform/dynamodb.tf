# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# A table for Tenure's locks, and the policy for the programs that use them.

variable "table_name" {
  type    = string
  default = "locks"
}

resource "aws_dynamodb_table" "locks" {
  name         = var.table_name
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "key"

  attribute {
    name = "key"
    type = "S"
  }

  # No ttl block: an item that expires loses its fencing token.

  # The tokens of all locks begin at 1 again in a new table.
  deletion_protection_enabled = true

  lifecycle {
    prevent_destroy = true
  }

  # Rarely wanted: a restored table has its old tokens. See
  # docs/guides/dynamodb.md before you restore one.
  point_in_time_recovery {
    enabled = false
  }
}

data "aws_iam_policy_document" "locks" {
  statement {
    sid = "Locks"
    actions = [
      "dynamodb:BatchGetItem",
      "dynamodb:DeleteItem",
      "dynamodb:DescribeTable",
      "dynamodb:GetItem",
      "dynamodb:UpdateItem",
    ]
    resources = [aws_dynamodb_table.locks.arn]
  }

  # To list locks, as with "tenure status" without a name.
  statement {
    sid       = "List"
    actions   = ["dynamodb:Scan"]
    resources = [aws_dynamodb_table.locks.arn]
  }

  # For transactions with FenceItem.Check.
  statement {
    sid       = "Fence"
    actions   = ["dynamodb:ConditionCheckItem"]
    resources = [aws_dynamodb_table.locks.arn]
  }
}

resource "aws_iam_policy" "locks" {
  name   = "${var.table_name}-tenure"
  policy = data.aws_iam_policy_document.locks.json
}

output "locks_policy_arn" {
  value = aws_iam_policy.locks.arn
}

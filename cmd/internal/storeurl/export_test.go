// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// EngineOf returns what a URL says of a store on an engine, and whether it is that engine.
func EngineOf[E engine](l Location) (E, bool) {
	e, ok := l.engine.(E)
	return e, ok
}

// DynamoDBOf is EngineOf for DynamoDB, to be compared.
func DynamoDBOf(l Location) (DynamoDB, bool) {
	d, ok := l.engine.(DynamoDB)
	d.found = nil
	return d, ok
}

// Client returns a client for a store on DynamoDB.
func Client(ctx context.Context, l Location) (*dynamodb.Client, error) {
	return l.engine.(DynamoDB).client(ctx)
}

// Whole returns what pgx gets.
func Whole(p Postgres) (string, error) { return p.whole() }

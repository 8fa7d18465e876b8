// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package dynamo gets at the DynamoDB engine that measurements are made on.
package dynamo

import (
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// EngineEnv names the endpoint of the engine, as scripts/engines prints it.
const EngineEnv = "TENURE_TEST_DYNOXIDE"

// NoEngine is the error of a program that has no engine.
func NoEngine(program string) error {
	return fmt.Errorf("there is no engine: %s is not set; scripts/engines run dynoxide -- go run ./evidence/%s starts one", EngineEnv, program)
}

// Region is one that the SDK knows by name: for others it searches with regular
// expressions, anew at each request.
const Region = "us-east-1"

// Connect returns a client of DynamoDB with connections of its own, as the SDK
// makes them by default.
func Connect(endpoint string) *dynamodb.Client { return ConnectIn(Region, endpoint, nil) }

// ConnectWide keeps the connections of all goroutines open: with the SDK's ten
// the opening and closing of connections is what would be measured.
func ConnectWide(endpoint string) (*dynamodb.Client, *http.Transport) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
	return ConnectIn(Region, endpoint, &http.Client{Transport: t}), t
}

// ConnectIn returns a client in a region, empty for the usual one, with the SDK's
// way to send requests if there is no other.
func ConnectIn(region, endpoint string, client aws.HTTPClient) *dynamodb.Client {
	if region == "" {
		region = Region
	}
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: region, HTTPClient: client,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// Uses the package that openapi-generator generates from the document; the argument is the service's address.
package main

import (
	"context"
	"os"

	"github.com/tableside/client"
)

func check(right bool, message string) {
	if !right {
		panic(message)
	}
}

func main() {
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: os.Args[1]}}
	records, ctx := client.NewAPIClient(configuration).RecordsAPI, context.Background()

	_, missing, err := records.GetRecord(ctx, "people", "linus").Execute()
	check(err != nil && missing.StatusCode == 404, "an absent record is found")

	_, put, _ := records.PutRecord(ctx, "people", "linus").RequestBody(map[string]interface{}{"n": 1}).Execute()
	check(put.StatusCode == 204, "the record is not written")

	value, _, err := records.GetRecord(ctx, "people", "linus").Execute()
	check(err == nil && value["n"] == 1.0, "the record is not read")

	refused, _ := records.DeleteRecord(ctx, "people", "linus").IfMatch(`"another"`).Execute()
	check(refused.StatusCode == 412, "a record of another version is deleted")
}

// Uses the package that oapi-codegen generates from the document; the argument is the service's address.
package main

import (
	"context"
	"os"

	"generated/client"
)

func check(right bool, message string) {
	if !right {
		panic(message)
	}
}

func main() {
	api, err := client.NewClientWithResponses(os.Args[1])
	check(err == nil, "no client")
	ctx := context.Background()

	absent, err := api.GetRecordWithResponse(ctx, "people", "alan", nil)
	check(err == nil && absent.ApplicationproblemJSON404.Code == "record_not_found", "an absent record is found")

	update := client.UpdateRequest{Default: &client.Value{"visits": 0}}
	check(update.Update.FromChanges(client.Changes{Inc: &map[string]float32{"visits": 1}}) == nil, "no update")
	counted, err := api.PatchRecordWithResponse(ctx, "people", "alan", nil, update)
	check(err == nil && counted.StatusCode() == 201, "the default is not used")

	found, err := api.GetRecordWithResponse(ctx, "people", "alan", nil)
	check(err == nil && (*found.JSON200)["visits"] == 1.0, "the record is not read")
}

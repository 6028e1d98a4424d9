// Uses the package that ogen generates from the document; the argument is the service's address.
package main

import (
	"context"
	"os"

	"generated/client"
)

type noToken struct{}

func (noToken) Bearer(context.Context, client.OperationName) (client.Bearer, error) {
	return client.Bearer{}, nil
}

func check(right bool, message string) {
	if !right {
		panic(message)
	}
}

func main() {
	api, err := client.NewClient(os.Args[1], noToken{})
	check(err == nil, "no client")
	ctx, ada := context.Background(), client.GetRecordParams{Table: "people", Key: "ada"}

	absent, err := api.GetRecord(ctx, ada)
	_, isAbsent := absent.(*client.GetRecordNotFound)
	check(err == nil && isAbsent, "an absent record is found")

	changes := client.Changes{Inc: client.NewOptChangesInc(client.ChangesInc{"visits": 1})}
	update := client.UpdateRequest{
		Update:  client.NewChangesUpdateDocument(changes),
		Default: client.NewOptNilValue(client.Value{"visits": []byte("0")}),
	}
	params := client.PatchRecordParams{Table: "people", Key: "ada"}
	counted, err := api.PatchRecord(ctx, &update, params)
	_, isCreated := counted.(*client.PatchRecordCreated)
	check(err == nil && isCreated, "the default is not used")

	found, err := api.GetRecord(ctx, ada)
	value, isRecord := found.(*client.ValueHeaders)
	check(err == nil && isRecord && string(value.Response["visits"]) == "1", "the record is not read")
}

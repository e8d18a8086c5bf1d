// Writes the flattened file system of an OCI layout's only image to a file, as one tar: what
// `crane export` does, for blobs that are on disk already.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: flatten LAYOUT FILE")
		os.Exit(2)
	}
	if err := flatten(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func flatten(from, to string) error {
	index, err := layout.ImageIndexFromPath(from)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("%s holds %d images, not one", from, len(manifest.Manifests))
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	tar := mutate.Extract(image)
	defer tar.Close()
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	if _, err := io.Copy(buffered, tar); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return file.Close()
}

// The search of MkDocs asks a worker, which no browser starts for a page that was opened from a folder.
// There this stands in for it, with the index as a script: docs/make_search.py writes that.
if (location.protocol === "file:") {
  window.Worker = class {
    postMessage(message) {
      if (message.init) this.load(["lunr.js", "search_index.js"]);
      else this.onmessage({ data: { results: this.find(message.query) } });
    }

    load([name, ...others]) {
      const script = document.createElement("script");
      script.src = base_url + "/search/" + name;
      script.onload = () => (others.length ? this.load(others) : this.index());
      document.head.append(script);
    }

    index() {
      const { config, docs } = window.searchIndex;
      lunr.tokenizer.separator = new RegExp(config.separator);
      this.pages = new Map(docs.map((page) => [page.location, page]));
      this.lunr = lunr(function () {
        this.ref("location");
        this.field("title");
        this.field("text");
        docs.forEach((page) => this.add(page));
      });
      this.onmessage({ data: { config } });
      this.onmessage({ data: { allowSearch: true } });
    }

    find(query) {
      const pages = this.lunr.search(query).map((found) => this.pages.get(found.ref));
      return pages.map((page) => ({ ...page, summary: page.text.slice(0, 200) }));
    }
  };
}

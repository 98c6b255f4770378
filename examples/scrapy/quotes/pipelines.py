from itemadapter import ItemAdapter


class Tidy:
    """Removes the quotation marks around a text."""

    def process_item(self, item):
        adapter = ItemAdapter(item)
        if adapter.get("text"):
            adapter["text"] = adapter["text"].strip("\u201c\u201d")
        return item

from scrapy.exceptions import DropItem


class FilterWords:
    """Drops the websites whose description has one of these words."""

    words = ("gambling", "politics")

    def process_item(self, item):
        for word in self.words:
            if word in item["description"].lower():
                raise DropItem(f"it is about {word}")
        return item

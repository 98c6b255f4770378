import scrapy
from itemloaders.processors import MapCompose, TakeFirst
from scrapy.loader import ItemLoader

from directory_bot.items import Website


class WebsiteLoader(ItemLoader):
    default_item_class = Website
    default_input_processor = MapCompose(str.strip)
    default_output_processor = TakeFirst()


class Directory(scrapy.Spider):
    name = "directory"
    categories = ("books", "resources", "tools")

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}directory/{category}/" for category in self.categories]

    def parse(self, response):
        for site in response.xpath("//ul[@class='directory-url']/li"):
            loader = WebsiteLoader(selector=site)
            loader.add_xpath("name", "a/text()")
            loader.add_xpath("url", "a/@href")
            loader.add_xpath("description", "text()", re=r"-\s(.*)")
            yield loader.load_item()
